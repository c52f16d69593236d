//! Admission webhook calls: failures, limits, addresses, credentials, metrics and audit events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request};
use serde_json::{Value, json};
use setpoint_apiserver::admission::AdmissionConfiguration;
use setpoint_apiserver::audit::{AuditConfig, BackendConfig, Entry, Format, Mode, Policy, SendError, Sink};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::egress::in_process::{allow, deny, patch};
use setpoint_apiserver::{ApiServer, Config};
use setpoint_clock::Rng;

use crate::custom::{DEFINITIONS, definition, gone};
use crate::extension::{Extension, Reply, Temporary};
use crate::webhooks::{Hooked, MAPS, PODS, map, pod, rule};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// An extension with a fixed response.
fn always(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Extension {
    Extension::new(move |_, review| reply(review))
}

fn code(code: u16) -> Reply {
    Reply::Code(code, vec![("content-type", "text/plain".into())], "boom".into())
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_webhook_follows_its_failure_policy() {
    type Make = fn(&Value) -> Reply;
    let huge: Make = |_| Reply::Code(200, Vec::new(), vec![b' '; (3 << 20) + 1].into());
    let moved: Make = |_| Reply::Code(302, vec![("location", "https://other.example/".into())], "".into());
    let no_content: Make = |_| Reply::Code(204, Vec::new(), "".into());
    let empty: Make = |_| Reply::Code(200, vec![("content-type", "text/plain".into())], "".into());
    let other: Make = |_| Reply::Json(json!({"apiVersion": "v1", "kind": "Pod"}));
    let cases: [(Make, &str); 15] = [
        (|_| Reply::Hang, "Post \"https://ext.example/v?timeout=10s\": context deadline exceeded"),
        (|_| Reply::Close, "Post \"https://ext.example/v?timeout=10s\": EOF"),
        (|_| code(500), "an error on the server (\"boom\") has prevented the request from succeeding"),
        (|_| code(404), "the server could not find the requested resource"),
        (moved, "the server responded with the status code 302 but did not return more information"),
        (huge, "the response is longer than 3145728 bytes"),
        (|_| Reply::Code(200, Vec::new(), "hello".into()), "couldn't get version/kind; json parse error"),
        (
            no_content,
            "failed to call webhook: 0-length response with status code: 204 and content type: application/json",
        ),
        (
            empty,
            "failed to call webhook: 0-length response with status code: 200 and content type: text/plain",
        ),
        (
            other,
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"",
        ),
        (
            |_| Reply::Json(json!({"apiVersion": "v1", "kind": "Status", "status": "Success"})),
            "failed to call webhook: converting (v1.Status) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            |_| Reply::Code(403, Vec::new(), r#"{"status":"Failure","message":"not now"}"#.into()),
            "failed to call webhook: not now",
        ),
        (
            |_| Reply::Code(500, Vec::new(), r#"{"kind":"Status","message":"not now"}"#.into()),
            "failed to call webhook: an error on the server (\"{\\\"kind\\\":\\\"Status\\\",\\\"message\\\":\\\"not now\\\"}\") has",
        ),
        (|_| Reply::Json(json!({})), "received invalid webhook response: webhook response was absent"),
        (
            |review| {
                let mut answer = allow(review);
                answer["response"]["uid"] = "other".into();
                Reply::Json(answer)
            },
            "received invalid webhook response: expected response.uid=",
        ),
    ];
    for (reply, expected) in cases {
        let hooked = Hooked::start_with(always(reply)).await;
        hooked.validating(json!({})).await;
        let refused = hooked.api.post(MAPS, map("a")).await;
        let (status, reason, message) = refused.refusal();
        assert_eq!((status, reason), (500, "InternalError"));
        let begin = "Internal error occurred: failed calling webhook \"v.hook.example\": ";
        assert!(message.starts_with(begin) && message.contains(expected), "{message}");
        assert_eq!(hooked.api.get(&format!("{MAPS}/a")).await.code, 404);
        let open = json!({"webhooks": [hooked.webhook("/v", json!({"failurePolicy": "Ignore"}))]});
        hooked.api.merge(&format!("{WEBHOOKS}/v"), open).await.ok();
        hooked.api.post(MAPS, map("a")).await.created();
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_refuses_connections_fails_closed_or_open() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    hooked.extension.refuses.store(true, Ordering::Relaxed);
    hooked.validating(json!({})).await;
    let refused = hooked.api.post(MAPS, map("a")).await;
    let expected = "Internal error occurred: failed calling webhook \"v.hook.example\": failed to call webhook: \
                    Post \"https://ext.example/v?timeout=10s\": dial tcp ext.example:443: connect: connection refused";
    assert_eq!(refused.refusal().2, expected);
    hooked.extension.refuses.store(false, Ordering::Relaxed);
    hooked.api.post(MAPS, map("a")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_timeout_or_at_the_requests() {
    let hooked = Hooked::start_with(always(|_| Reply::Hang)).await;
    hooked.validating(json!({"timeoutSeconds": 4})).await;
    let clock = hooked.api.clock.clone();
    let timed = async |path: &str| {
        let began = clock.instant();
        let answer = hooked.api.post(path, map("a")).await;
        (answer.code, clock.instant() - began)
    };
    assert_eq!(timed(MAPS).await, (500, Duration::from_secs(4)));
    assert_eq!(timed(&format!("{MAPS}?timeout=2s")).await, (504, Duration::from_secs(2)));
    // Two mutating webhooks run in sequence, but within the time limit of a handler.
    let slow = json!({"timeoutSeconds": 20, "failurePolicy": "Ignore"});
    let webhooks = ["/1", "/2"].map(|path| hooked.webhook(path, slow.clone()));
    hooked.configure("mutating", "m", &webhooks).await.created();
    let began = clock.instant();
    let late = hooked.api.post(MAPS, map("a")).await;
    let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    assert_eq!(late.refusal(), (504, "Timeout", why));
    assert!(clock.instant() - began <= Duration::from_secs(34));
    let queries: Vec<_> = hooked.extension.take_heads().iter().map(|head| head.uri.to_string()).collect();
    assert_eq!(queries[2..], ["/1?timeout=20s", "/2?timeout=14s"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_ends_the_call() {
    let hooked = Hooked::start_with(always(|_| Reply::Hang)).await;
    hooked.validating(json!({"timeoutSeconds": 30})).await;
    let request = Request::post(MAPS).body(map("a").to_string().into()).unwrap();
    let calling = hooked.api.server.handle(hooked.api.user.clone(), request);
    assert!(tokio::time::timeout(Duration::from_secs(1), calling).await.is_err());
    let began = hooked.api.clock.instant();
    hooked.api.server.finish_writes().await;
    assert_eq!(hooked.api.clock.instant() - began, Duration::ZERO);
    assert_eq!(hooked.api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_deleted_during_a_call_still_applies() {
    let hooked = Hooked::start_with(always(|_| Reply::Hang)).await;
    hooked.validating(json!({"timeoutSeconds": 5})).await;
    let deleting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        hooked.api.delete(&format!("{WEBHOOKS}/v")).await.ok();
    };
    let (refused, ()) = tokio::join!(hooked.api.post(MAPS, map("a")), deleting);
    assert_eq!(refused.code, 500);
    hooked.api.post(MAPS, map("a")).await.created();
}

#[tokio::test(start_paused = true)]
async fn connections_are_reused_until_the_configuration_changes() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    hooked.validating(json!({})).await;
    for name in ["a", "b", "c"] {
        hooked.api.post(MAPS, map(name)).await.created();
    }
    assert_eq!(hooked.extension.take_dialed(), ["ext.example:443"]);
    let mut changed = hooked.webhook("/v", json!({}));
    changed["clientConfig"]["url"] = "https://ext.example:8443/other".into();
    hooked.api.merge(&format!("{WEBHOOKS}/v"), json!({"webhooks": [changed]})).await.ok();
    hooked.api.post(MAPS, map("d")).await.created();
    assert_eq!(hooked.extension.take_dialed(), ["ext.example:8443"]);
    let back = json!({"webhooks": [hooked.webhook("/v", json!({}))]});
    hooked.api.merge(&format!("{WEBHOOKS}/v"), back).await.ok();
    hooked.api.post(MAPS, map("e")).await.created();
    assert_eq!(hooked.extension.take_dialed(), ["ext.example:443"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_authority_fails_at_the_call() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    let stranger = rcgen::generate_simple_self_signed(["stranger".to_owned()]).unwrap().cert.pem();
    let failed = "tls: failed to verify certificate: x509:";
    for (url, bundle, expected) in [
        (
            "https://ext.example/v",
            "nonsense",
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block",
        ),
        ("https://ext.example/v", &stranger, &format!("{failed} certificate signed by unknown authority")),
        (
            "https://other.example/v",
            &hooked.extension.authority,
            &format!("{failed} certificate is valid for ext.example, *.default.svc, not other.example"),
        ),
    ] {
        let mut webhook = hooked.webhook("/v", json!({}));
        webhook["clientConfig"] = json!({"url": url, "caBundle": base64(bundle)});
        hooked.configure("validating", "v", &[webhook]).await.created();
        let refused = hooked.api.post(MAPS, map("a")).await;
        assert!(refused.refusal().2.contains(expected), "{}", refused.text);
        hooked.api.delete(&format!("{WEBHOOKS}/v")).await.ok();
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns a webhook at port 443 of the service `hook`.
fn by_service(hooked: &Hooked) -> Value {
    let mut webhook = hooked.webhook("/v", json!({}));
    let bundle = webhook["clientConfig"]["caBundle"].take();
    webhook["clientConfig"] =
        json!({"service": {"name": "hook", "namespace": "default", "path": "/v"}, "caBundle": bundle});
    webhook
}

fn slice(name: &str, endpoints: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "https", "port": 8443}]})
}

async fn start_service() -> Hooked {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    hooked.configure("validating", "v", &[by_service(&hooked)]).await.created();
    hooked
}

fn ports() -> Value {
    json!([{"name": "https", "port": 443, "targetPort": 8443}])
}

#[tokio::test(start_paused = true)]
async fn a_service_is_dialed_at_a_ready_endpoint() {
    let hooked = start_service().await;
    let failure = async || {
        let refused = hooked.api.post(MAPS, map("a")).await;
        let message = refused.refusal().2.to_owned();
        let begin = "Internal error occurred: failed calling webhook \"v.hook.example\": failed to call webhook: \
                     Post \"https://hook.default.svc:443/v?timeout=10s\": ";
        message.strip_prefix(begin).unwrap_or_else(|| panic!("{message}")).to_owned()
    };
    assert_eq!(failure().await, "service \"hook\" not found");
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "http", "port": 80}]}});
    hooked.api.post(SERVICES, service).await.created();
    assert_eq!(failure().await, "no service port 443 found for service \"hook\"");
    hooked.api.merge(&format!("{SERVICES}/hook"), json!({"spec": {"ports": ports()}})).await.ok();
    assert_eq!(failure().await, "no endpoints available for service \"hook\"");
    let unready = json!([{"addresses": ["10.1.0.1"], "conditions": {"ready": false}}]);
    hooked.api.post(SLICES, slice("a", unready)).await.created();
    assert_eq!(failure().await, "no endpoints available for service \"hook\"");
    let mixed =
        json!([{"addresses": ["10.1.0.2"], "conditions": {"ready": false}}, {"addresses": ["10.1.0.3"]}]);
    hooked.api.post(SLICES, slice("b", mixed)).await.created();
    hooked.extension.take_dialed();
    hooked.api.post(MAPS, map("a")).await.created();
    assert_eq!(hooked.extension.take_dialed(), ["10.1.0.3:8443"]);
}

/// Annotations of pods and labels of nodes are up to others: they must not lead calls to this machine.
#[tokio::test(start_paused = true)]
async fn an_endpoint_is_dialed_by_its_address_whatever_its_pod_says() {
    let hooked = start_service().await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": ports()}});
    hooked.api.post(SERVICES, service).await.created();
    hooked.api.default_service_account().await;
    let node = json!({"metadata": {"name": "n", "labels": {"node.setpoint.dev/simulated": "true"}}});
    hooked.api.post("/api/v1/nodes", node).await.created();
    let mut pod = pod("p");
    pod["metadata"]["annotations"] = json!({"node.setpoint.dev/backend": "127.0.0.1:9443"});
    pod["spec"]["nodeName"] = "n".into();
    hooked.api.post(PODS, pod).await.created();
    let target = json!({"kind": "Pod", "name": "p", "namespace": "default"});
    let endpoints = json!([{"addresses": ["10.1.0.1"], "targetRef": target}]);
    hooked.api.post(SLICES, slice("s", endpoints)).await.created();
    hooked.extension.take_dialed();
    hooked.api.post(MAPS, map("a")).await.created();
    assert_eq!(hooked.extension.take_dialed(), ["10.1.0.1:8443"]);
}

#[tokio::test(start_paused = true)]
async fn an_external_name_is_dialed_unless_only_endpoints_count() {
    for (endpoint_routing, expected) in
        [(false, Ok("hook.elsewhere.example:443")), (true, Err("unsupported service type \"ExternalName\""))]
    {
        let extension = Extension::new(|_, review| Reply::Json(allow(review)));
        let hooked = Hooked::start_changed(extension, |config| {
            let egress = EgressConfig { endpoint_routing, ..config.egress.clone() };
            Config { egress, ..config }
        })
        .await;
        hooked.configure("validating", "v", &[by_service(&hooked)]).await.created();
        let external =
            json!({"type": "ExternalName", "externalName": "hook.elsewhere.example", "ports": ports()});
        hooked.api.post(SERVICES, json!({"metadata": {"name": "hook"}, "spec": external})).await.created();
        let answer = hooked.api.post(MAPS, map("a")).await;
        match expected {
            Ok(address) => {
                answer.created();
                assert_eq!(hooked.extension.take_dialed(), [address]);
            }
            Err(why) => assert!(answer.refusal().2.ends_with(why), "{}", answer.text),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_match_the_host() {
    let users = "users: [{name: ext.example, user: {token: mine}}, {name: '*', user: {token: any}}]";
    let kubeconfig = Temporary::new(users);
    let webhook = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": kubeconfig.path()});
    let file = Temporary::new(
        &json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": webhook}]})
        .to_string(),
    );
    let configuration = AdmissionConfiguration::load(&file.path()).unwrap();
    let extension = Extension::new(|_, review| Reply::Json(allow(review)));
    let hooked = Hooked::start_changed(extension, |config| {
        let egress = EgressConfig {
            mutating_users: configuration.mutating_users,
            validating_users: configuration.validating_users,
            ..config.egress.clone()
        };
        Config { egress, ..config }
    })
    .await;
    hooked.validating(json!({})).await;
    hooked.mutating(json!({})).await;
    hooked.api.post(MAPS, map("a")).await.created();
    let sent: Vec<_> =
        hooked.extension.take_heads().iter().map(|head| head.headers.get("authorization").cloned()).collect();
    assert_eq!(sent, [None, Some("Bearer mine".parse().unwrap())]);
}

#[tokio::test(start_paused = true)]
async fn a_server_starts_while_its_webhooks_are_down() {
    let hooked = Hooked::start_with(always(|_| Reply::Hang)).await;
    hooked.validating(json!({"rules": [rule("*", "*", &["*"])], "timeoutSeconds": 30})).await;
    let (store, clock) = (hooked.api.store.clone(), hooked.api.clock.clone());
    let began = clock.instant();
    let config = Config::new(store, clock.clone(), Rng::seeded(2)).with_roles();
    let egress = EgressConfig { dial: Arc::new(hooked.extension.clone()), ..EgressConfig::default() };
    ApiServer::start(Config { egress, ..config }).await.unwrap();
    assert_eq!(clock.instant() - began, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn webhook_calls_are_counted_by_result() {
    let turn = AtomicUsize::new(0);
    let extension = always(move |review| match turn.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Json(allow(review)),
        1 => Reply::Json(deny(review, "no")),
        _ => code(500),
    });
    let hooked = Hooked::start_with(extension).await;
    hooked
        .validating(
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name != 'skipped'"}]}),
        )
        .await;
    for name in ["a", "b", "c", "skipped"] {
        hooked.api.post(MAPS, map(name)).await;
    }
    let open = json!({"webhooks": [hooked.webhook("/v", json!({"failurePolicy": "Ignore"}))]});
    hooked.api.merge(&format!("{WEBHOOKS}/v"), open).await.ok();
    hooked.api.post(MAPS, map("open")).await.created();
    let metrics = hooked.api.get("/metrics").await.text;
    let of = |kind: &str| format!("name=\"v.hook.example\",{kind}operation=\"CREATE\"");
    let (call, condition) = (of("type=\"validating\","), of("kind=\"webhook\",type=\"validate\","));
    for expected in [
        format!("apiserver_admission_webhook_request_total{{{call},code=\"200\",rejected=\"false\"}} 1"),
        format!("apiserver_admission_webhook_request_total{{{call},code=\"400\",rejected=\"true\"}} 1"),
        format!("apiserver_admission_webhook_request_total{{{call},code=\"500\",rejected=\"true\"}} 1"),
        format!("apiserver_admission_webhook_request_total{{{call},code=\"500\",rejected=\"false\"}} 1"),
        format!(
            "apiserver_admission_webhook_rejection_count{{{call},error_type=\"no_error\",rejection_code=\"400\"}} 1"
        ),
        format!(
            "apiserver_admission_webhook_rejection_count{{{call},error_type=\"calling_webhook_error\",rejection_code=\"500\"}} 1"
        ),
        "apiserver_admission_webhook_fail_open_count{name=\"v.hook.example\",type=\"validating\"} 1"
            .to_owned(),
        format!("apiserver_admission_webhook_admission_duration_seconds_count{{{call},rejected=\"true\"}} 2"),
        format!("apiserver_admission_match_condition_exclusions_total{{{condition}}} 1"),
        format!("apiserver_admission_match_condition_evaluation_seconds_count{{{condition}}} 4"),
    ] {
        assert!(metrics.lines().any(|line| line == expected), "{expected}\n{metrics}");
    }
}

/// Collects audit events.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<Value>>>);

impl Sink for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn send(&self, batch: Vec<Entry>) -> futures::future::BoxFuture<'static, Result<(), SendError>> {
        let events = batch.iter().map(|entry| serde_json::from_slice(&entry.bytes).unwrap());
        self.0.lock().unwrap().extend(events);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_records_webhook_results() {
    let log = Log::default();
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, omitStages: [RequestReceived]}]\n";
    let backend = BackendConfig {
        sink: Box::new(log.clone()),
        mode: Mode::Blocking,
        format: Format::Json,
        truncation: None,
    };
    let audit = AuditConfig { policy: Policy::parse(rules).unwrap(), backends: vec![backend] };
    let extension = Extension::new(|path, review| {
        let mut answer = match path {
            "/m" => patch(review, &json!([{"op": "add", "path": "/data/x", "value": "y"}])),
            "/broken" => return code(500),
            _ => allow(review),
        };
        answer["response"]["auditAnnotations"] = json!({"why": "because", "not/a/name": "x"});
        Reply::Json(answer)
    });
    let hooked = Hooked::start_changed(extension, |config| Config { audit: Some(audit), ..config }).await;
    let open = json!({"failurePolicy": "Ignore"});
    hooked
        .configure(
            "mutating",
            "m",
            &[hooked.webhook("/m", json!({})), hooked.webhook("/broken", open.clone())],
        )
        .await
        .created();
    hooked.configure("validating", "v", &[hooked.webhook("/broken", open)]).await.created();
    hooked.api.ask(Method::POST, MAPS, &[], map("a").to_string()).await.created();
    let event = log.0.lock().unwrap().pop().unwrap();
    let mut annotations = event["annotations"].clone();
    let annotations = annotations.as_object_mut().unwrap();
    annotations.retain(|key, _| !key.starts_with("authorization.k8s.io/"));
    let expected = json!({
        "m.hook.example/why": "because",
        "mutation.webhook.admission.k8s.io/round_0_index_0":
            "{\"configuration\":\"m\",\"webhook\":\"m.hook.example\",\"mutated\":true}",
        "mutation.webhook.admission.k8s.io/round_0_index_1":
            "{\"configuration\":\"m\",\"webhook\":\"broken.hook.example\",\"mutated\":false}",
        "patch.webhook.admission.k8s.io/round_0_index_0":
            "{\"configuration\":\"m\",\"webhook\":\"m.hook.example\",\"patch\":[{\"op\":\"add\",\"path\":\"/data/x\",\"value\":\"y\"}],\"patchType\":\"JSONPatch\"}",
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "broken.hook.example",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "broken.hook.example",
    });
    assert_eq!(Value::Object(annotations.clone()), expected);
}

/// A webhook for everything that is down, as policy engines have it.
#[tokio::test(start_paused = true)]
async fn a_webhook_for_api_services_does_not_hold_up_definitions() {
    let is_silent = Arc::new(AtomicUsize::new(0));
    let silent = is_silent.clone();
    let extension = always(move |_| match silent.load(Ordering::SeqCst) {
        0 => code(500),
        _ => Reply::Hang,
    });
    let hooked = Hooked::start_with(extension).await;
    let api = &hooked.api;
    let definition = |group: &str| {
        let mut definition = definition(json!({"type": "object"}));
        definition["metadata"]["name"] = format!("foos.{group}").into();
        definition["spec"]["group"] = group.into();
        definition
    };
    let service = |group: &str| format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{group}");
    for group in ["a.com", "b.com"] {
        api.post(DEFINITIONS, definition(group)).await.created();
    }
    let rules = json!([rule("apiregistration.k8s.io", "*", &["*"])]);
    hooked.validating(json!({"rules": rules, "timeoutSeconds": 30})).await;
    for (group, silence) in [("a.com", 0), ("b.com", 1)] {
        is_silent.store(silence, Ordering::SeqCst);
        api.delete(&format!("{DEFINITIONS}/foos.{group}")).await.ok();
        gone(api, &format!("foos.{group}")).await;
        assert_eq!(api.get(&service(group)).await.code, 200, "its APIService cannot be deleted");
    }
    let creating = api.post(DEFINITIONS, definition("c.com"));
    tokio::time::timeout(Duration::from_secs(5), creating).await.expect("it need not wait").created();
    assert_eq!(api.get("/apis/c.com/v1").await.code, 200);
    api.delete(&format!("{WEBHOOKS}/v")).await.ok();
    // The calls that hang come to their end.
    tokio::time::sleep(Duration::from_secs(120)).await;
    api.post(DEFINITIONS, definition("d.com")).await.created();
    for (group, code) in [("a.com", 404), ("b.com", 404), ("c.com", 200), ("d.com", 200)] {
        assert_eq!(api.get(&service(group)).await.code, code, "{group}");
    }
}
