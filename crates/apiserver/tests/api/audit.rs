//! Audit logging: what is recorded at which level, and what happens if recording fails.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::admission::{Plugin, Review, default_plugins};
use setpoint_apiserver::audit::{
    AuditConfig, BackendConfig, Entry, Format, Mode, Policy, Reader, SendError, Sink, Truncation,
};
use setpoint_apiserver::auth::rbac::{RoleRef, Rule};
use setpoint_apiserver::auth::{Attributes, Authorizer, Decision, UserRules, Verdict};
use setpoint_apiserver::registry::Gvr;
use setpoint_apiserver::{Config, Features, Selection, Status, TokenSigner, User};

use crate::client::Api;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Keeps events, or rejects them while `refuses` is set.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) events: Arc<std::sync::Mutex<Vec<Value>>>,
    refuses: Arc<AtomicBool>,
}

impl Sink for Memory {
    fn name(&self) -> &'static str {
        "log"
    }

    fn send(&self, batch: Vec<Entry>) -> BoxFuture<'static, Result<(), SendError>> {
        if self.refuses.load(Ordering::Relaxed) {
            return std::future::ready(Err(SendError::new("no space left"))).boxed();
        }
        let events = batch.iter().map(|entry| serde_json::from_slice(&entry.bytes).unwrap());
        self.events.lock().unwrap().extend(events);
        std::future::ready(Ok(())).boxed()
    }
}

impl Memory {
    /// Takes the events so far.
    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// Returns the last event of the stage that ends a request.
    fn last(&self) -> Value {
        let events = self.take();
        events.into_iter().rfind(|event| event["stage"] == "ResponseComplete").expect("an event")
    }
}

struct Audited {
    api: Api,
    log: Memory,
}

async fn start_with(rules: &str, mode: Mode, change: impl FnOnce(Config) -> Config) -> Audited {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}\n");
    let log = Memory::default();
    let backend = BackendConfig { sink: Box::new(log.clone()), mode, format: Format::Json, truncation: None };
    let audit = AuditConfig { policy: Policy::parse(&text).unwrap(), backends: vec![backend] };
    let api = Api::start_audited(audit, change).await;
    log.take();
    Audited { api, log }
}

async fn start(rules: &str) -> Audited {
    start_with(rules, Mode::Blocking, |config| config).await
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(start_paused = true)]
async fn a_request_is_recorded_on_arrival_and_on_completion() {
    let Audited { api, log } = start("- {level: RequestResponse, omitManagedFields: true}").await;
    let headers = [("audit-id", "mine"), ("user-agent", "tester"), ("x-forwarded-for", "10.1.2.3")];
    let created =
        api.ask(Method::POST, &format!("{MAPS}?fieldManager=m"), &headers, map("a").to_string()).await;
    let created = created.created();
    let events = log.take();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let mut expected = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "mine",
        "stage": "RequestReceived",
        "requestURI": "/api/v1/namespaces/default/configmaps?fieldManager=m",
        "verb": "create",
        "user": {"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["10.1.2.3", "127.0.0.1"],
        "userAgent": "tester",
        "objectRef": {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2025-01-01T00:00:00.000000Z",
        "stageTimestamp": "2025-01-01T00:00:00.000000Z",
    });
    assert_eq!(events[0], expected);
    expected["stage"] = json!("ResponseComplete");
    expected["objectRef"]["name"] = json!("a");
    expected["responseStatus"] = json!({"metadata": {}, "code": 201});
    expected["annotations"] =
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""});
    expected["requestObject"] =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let mut shown = created.clone();
    shown["metadata"].as_object_mut().unwrap().remove("managedFields");
    expected["responseObject"] = shown;
    assert_eq!(events[1], expected);
}

#[tokio::test(start_paused = true)]
async fn the_level_determines_what_is_recorded() {
    let rules = "- {level: None, verbs: [list]}\n\
                 - {level: Metadata, resources: [{resources: [secrets]}]}\n\
                 - {level: Request, omitStages: [RequestReceived]}";
    let Audited { api, log } = start(rules).await;
    api.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await.created();
    let events = log.take();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    assert_eq!(events[1]["objectRef"]["name"], "s");
    assert!(events.iter().all(|event| event.get("requestObject").is_none()));
    let created = api.post(MAPS, map("a")).await.created();
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert!(events[0].get("requestObject").is_some() && events[0].get("responseObject").is_none());
    api.get(MAPS).await.ok();
    assert_eq!(log.take(), [Value::Null; 0]);
    let mut update = created.clone();
    update["data"] = json!({});
    api.put(&format!("{MAPS}/a"), update).await.ok();
    let reference = log.last()["objectRef"].clone();
    assert_eq!(reference["uid"], created["metadata"]["uid"]);
    assert_eq!(reference["resourceVersion"], created["metadata"]["resourceVersion"]);
    let text = api.get("/metrics").await.text;
    for line in [
        r#"apiserver_audit_level_total{level="None"}"#,
        r#"apiserver_audit_level_total{level="Metadata"} "#,
        "apiserver_audit_event_total ",
        "apiserver_audit_requests_rejected_total 0",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn patches_and_deletions_are_recorded_as_they_were_sent() {
    let Audited { api, log } = start("- {level: RequestResponse}").await;
    api.post(MAPS, map("a")).await.created();
    api.patch("json", &format!("{MAPS}/a"), json!([{"op": "remove", "path": "/data"}])).await.ok();
    assert_eq!(log.last()["requestObject"], json!([{"op": "remove", "path": "/data"}]));
    let yaml = [("content-type", "application/apply-patch+yaml")];
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
    api.ask(Method::PATCH, &format!("{MAPS}/a?fieldManager=m"), &yaml, body).await.ok();
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(log.last()["requestObject"], expected);
    api.delete_with(
        &format!("{MAPS}/a"),
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}),
    )
    .await;
    let event = log.last();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "dryRun": ["All"]});
    assert_eq!(event["requestObject"], options);
    assert_eq!(event["responseStatus"]["status"], "Success");
    assert_eq!(event["responseObject"]["kind"], "Status");
    api.get(MAPS).await.ok();
    let list = log.last()["responseObject"].clone();
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&json!("ConfigMapList"), &json!("a"))
    );
    api.get_as("application/vnd.kubernetes.protobuf", &format!("{MAPS}/a")).await;
    assert_eq!(log.last()["responseObject"]["kind"], "ConfigMap");
    api.get(&format!("{MAPS}/none")).await;
    let event = log.last();
    assert_eq!(event["responseStatus"]["reason"], "NotFound");
    assert_eq!(event["responseObject"]["code"], 404);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_recorded_when_it_starts_and_when_it_ends() {
    let Audited { api, log } = start("- {level: RequestResponse}").await;
    let watch = api.open_watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da")).await;
    let events = log.take();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted"]);
    assert_eq!(events[1]["responseStatus"]["code"], 200);
    assert_eq!(events[1]["objectRef"]["name"], "a");
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(watch);
    api.server.close_audit().await;
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert!(events[0].get("responseObject").is_none());
    assert_eq!(events[0]["annotations"]["apiserver.latency.k8s.io/total"], "1s");
    assert_eq!(events[0]["stageTimestamp"], "2025-01-01T00:00:01.000000Z");
}

#[tokio::test(start_paused = true)]
async fn another_user_is_recorded_beside_the_real_one() {
    let Audited { api, log } = start("- {level: Metadata, users: [admin]}").await;
    let headers = [("impersonate-user", "jane"), ("impersonate-group", "dev")];
    api.ask(Method::GET, MAPS, &headers, "").await;
    let event = log.last();
    assert_eq!(event["user"]["username"], "admin");
    let expected = json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
    assert_eq!(event["impersonatedUser"], expected);
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(
        (&event["responseStatus"]["code"], &event["responseStatus"]["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_rejected_first_has_one_event() {
    let Audited { api, log } = start("- {level: Metadata}").await;
    assert_eq!(api.get(&format!("{MAPS}?timeout=soon")).await.code, 400);
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!((&events[0]["user"], &events[0]["responseStatus"]["code"]), (&json!({}), &json!(400)));
}

#[tokio::test(start_paused = true)]
async fn admission_plugins_add_annotations() {
    let Audited { api, log } = start("- {level: Metadata}").await;
    let labels = json!({"pod-security.kubernetes.io/audit": "restricted"});
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "n", "labels": labels}})).await.created();
    api.post("/api/v1/namespaces/n/serviceaccounts", json!({"metadata": {"name": "default"}}))
        .await
        .created();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.post("/api/v1/namespaces/n/pods", pod).await.created();
    let annotations = log.last()["annotations"].clone();
    assert_eq!(annotations["pod-security.kubernetes.io/enforce-policy"], "privileged:latest");
    let violations = annotations["pod-security.kubernetes.io/audit-violations"].as_str().unwrap();
    assert!(violations.starts_with("would violate PodSecurity \"restricted:latest\": "), "{violations}");
    api.get("/api/v1/namespaces/n/endpoints").await.ok();
    assert_eq!(log.last()["annotations"]["k8s.io/deprecated"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_policy_notes_failures_and_values() {
    let Audited { api, log } = start("- {level: Metadata}").await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "true"}, {"expression": "false", "message": "no <b>"}],
        "auditAnnotations": [{"key": "name", "valueExpression": "'is ' + object.metadata.name"}],
    }});
    let group = "/apis/admissionregistration.k8s.io/v1";
    api.post(&format!("{group}/validatingadmissionpolicies"), policy).await.created();
    let binding =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Audit"]}});
    api.post(&format!("{group}/validatingadmissionpolicybindings"), binding).await.created();
    api.post(MAPS, map("a")).await.created();
    let annotations = log.last()["annotations"].clone();
    assert_eq!(annotations["p/name"], "is a");
    let failure = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    assert_eq!(
        failure,
        r#"[{"message":"no \u003cb\u003e","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Audit"]}]"#
    );
}

/// Takes an hour for objects named `slow`, and panics on those named `panic`.
struct Peculiar;

impl Plugin for Peculiar {
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.name.as_str(), "slow" | "panic")
    }

    async fn mutate(&self, review: &Review<'_>, _: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        assert_ne!(review.name, "panic", "an unusual object");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok(())
    }
}

async fn start_peculiar() -> Audited {
    let peculiar = |config: Config| {
        let mut admission = default_plugins();
        admission.push(Box::new(Peculiar));
        Config { admission, ..config }
    };
    start_with("- {level: Metadata, omitStages: [RequestReceived]}", Mode::BlockingStrict, peculiar).await
}

#[tokio::test(start_paused = true)]
async fn a_panicking_request_is_recorded() {
    let Audited { api, log } = start_peculiar().await;
    assert_eq!(api.post(MAPS, map("panic")).await.code, 500);
    let events = log.take();
    assert_eq!(stages(&events), ["Panic"]);
    let message = events[0]["responseStatus"]["message"].as_str().unwrap();
    assert!(message.starts_with("APIServer panic'd: ") && message.contains("an unusual object"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_completed_in_the_log_though_its_client_got_a_timeout() {
    let Audited { api, log } = start_peculiar().await;
    let answer = api.post(MAPS, map("slow")).await;
    assert_eq!(answer.code, 504);
    assert_eq!(log.take(), [Value::Null; 0]);
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(log.last()["responseStatus"]["code"], 504);
    assert_eq!(api.get(&format!("{MAPS}/slow")).await.code, 404);
}

/// Polls once and drops the future.
fn poll_and_drop(work: impl Future) {
    let mut work = Box::pin(work);
    let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending));
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_client_hangs_up_or_runs_out_of_time_is_completed() {
    let Audited { api, log } = start("- {level: Metadata, omitStages: [RequestReceived]}").await;
    let future = format!("{MAPS}?resourceVersion=1000000");
    poll_and_drop(api.get(&future));
    tokio::task::yield_now().await;
    let status = log.last()["responseStatus"].clone();
    assert_eq!((&status["code"], &status["message"]), (&json!(200), &json!("Connection closed early")));
    assert_eq!(api.get(&format!("{future}&timeout=1s")).await.code, 504);
    tokio::task::yield_now().await;
    let status = log.last()["responseStatus"].clone();
    assert_eq!((&status["code"], &status["reason"]), (&json!(504), &json!("Timeout")));
}

#[tokio::test(start_paused = true)]
async fn in_strict_mode_a_request_fails_if_it_cannot_be_recorded() {
    let Audited { api, log } = start_with("- {level: Metadata}", Mode::BlockingStrict, |config| config).await;
    log.refuses.store(true, Ordering::Relaxed);
    let refused = api.post(MAPS, map("a")).await;
    assert_eq!(refused.code, 500);
    assert_eq!(refused.text, format!("Internal Server Error: {MAPS:?}: failed to store audit event\n"));
    log.refuses.store(false, Ordering::Relaxed);
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404, "nothing was stored");
    let text = api.get("/metrics").await.text;
    for line in
        [r#"apiserver_audit_error_total{plugin="log"} 1"#, "apiserver_audit_requests_rejected_total 1"]
    {
        assert!(text.contains(line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_strict_mode_a_write_is_not_acknowledged_before_it_is_recorded() {
    let rules = "- {level: Metadata, omitStages: [RequestReceived]}";
    let Audited { api, log } = start_with(rules, Mode::BlockingStrict, |config| config).await;
    log.refuses.store(true, Ordering::Relaxed);
    assert_eq!(api.post(MAPS, map("a")).await.code, 500);
    log.refuses.store(false, Ordering::Relaxed);
    api.get(&format!("{MAPS}/a")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn in_blocking_mode_a_failure_costs_events_and_no_requests() {
    let Audited { api, log } = start("- {level: Metadata}").await;
    log.refuses.store(true, Ordering::Relaxed);
    api.post(MAPS, map("a")).await.created();
    let text = api.get("/metrics").await.text;
    assert!(text.contains(r#"apiserver_audit_error_total{plugin="log"} 3"#), "{text}");
    assert!(text.contains("apiserver_audit_requests_rejected_total 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_too_large_loses_its_objects() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n";
    let log = Memory::default();
    let truncation = Some(Truncation { max_event_bytes: 2000, max_batch_bytes: 4000 });
    let (sink, mode) = (Box::new(log.clone()), Mode::BlockingStrict);
    let backend = BackendConfig { sink, mode, format: Format::Json, truncation };
    let audit = AuditConfig { policy: Policy::parse(text).unwrap(), backends: vec![backend] };
    let api = Api::start_audited(audit, |config| config).await;
    log.take();
    api.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(3000)}})).await.created();
    let event = log.last();
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    // Still too large: in strict mode, such a request is rejected. Otherwise its event is dropped.
    let agent = "x".repeat(1024);
    let headers = [("user-agent", agent.as_str()), ("audit-id", agent.as_str())];
    assert_eq!(api.ask(Method::GET, MAPS, &headers, "").await.code, 500);
}

#[tokio::test(start_paused = true)]
async fn the_server_and_components_of_its_process_are_recorded_too() {
    let rules = "- {level: Metadata, users: ['system:apiserver', informer]}";
    let log = Memory::default();
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}\n");
    let (sink, mode) = (Box::new(log.clone()), Mode::Blocking);
    let backend = BackendConfig { sink, mode, format: Format::Json, truncation: None };
    let audit = AuditConfig { policy: Policy::parse(&text).unwrap(), backends: vec![backend] };
    let api = Api::start_audited(audit, |config| config).await;
    let events = log.take();
    let made =
        |event: &Value| event["objectRef"]["name"] == "kube-system" && event["stage"] == "ResponseComplete";
    let own = events.iter().find(|event| made(event)).expect("the server creates system namespaces");
    assert_eq!((&own["user"]["username"], &own["verb"]), (&json!("system:apiserver"), &json!("create")));
    let reader = Reader { user: User::system("informer"), user_agent: "setpoint".into() };
    let maps = Gvr::new("", "v1", "configmaps");
    let selection = Selection { labels: Some("a=b".into()), ..Selection::in_namespace("n") };
    let read = api.server.record_read(&reader, &maps, &selection, true).await.unwrap();
    assert_eq!(stages(&log.take()), ["RequestReceived", "ResponseStarted"]);
    drop(read);
    api.server.close_audit().await;
    let event = log.last();
    assert_eq!(event["requestURI"], "/api/v1/namespaces/n/configmaps?labelSelector=a%3Db&watch=true");
    assert_eq!((&event["verb"], &event["sourceIPs"]), (&json!("watch"), &json!(["127.0.0.1"])));
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 200}));
}

#[tokio::test(start_paused = true)]
async fn an_escaped_path_is_recorded_decoded() {
    let rules = "- {level: Metadata, nonResourceURLs: [/version]}\n- {level: None}";
    let Audited { api, log } = start(rules).await;
    api.get("/%76ersion").await.ok();
    assert_eq!(log.last()["requestURI"], "/%76ersion");
}

/// Fails to decide, but returns this verdict.
struct Failing(Verdict);

impl Authorizer for Failing {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        std::future::ready(Decision::failed(self.0, "no roles")).boxed()
    }

    fn rules<'a>(&'a self, _: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        std::future::ready(UserRules::default()).boxed()
    }

    fn role<'a>(&'a self, _: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        std::future::ready(Err("no roles".into())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn an_authorizer_that_fails_has_not_decided() {
    let decision = "authorization.k8s.io/decision";
    let reason = "authorization.k8s.io/reason";
    for (verdict, code, expected) in [
        (Verdict::NoOpinion, 500, json!({reason: "internal error"})),
        (Verdict::Deny, 500, json!({reason: "internal error"})),
        (Verdict::Allow, 200, json!({decision: "allow", reason: ""})),
    ] {
        let failing = |config| Config { authorizer: Arc::new(Failing(verdict)), ..config };
        let Audited { api, log } = start_with("- {level: Metadata}", Mode::Blocking, failing).await;
        assert_eq!(api.get(MAPS).await.code, code);
        assert_eq!(log.last()["annotations"], expected);
    }
}

/// Starts a server with a key for service account tokens.
async fn start_with_tokens() -> (Audited, TokenSigner) {
    let signer = TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap();
    let own = signer.clone();
    let with_key = |config: Config| Config { token_signer: Some(own), ..config.with_roles() };
    let audited = start_with("- {level: Metadata}", Mode::Blocking, with_key).await;
    audited.api.default_service_account().await;
    (audited, signer)
}

impl Audited {
    /// Sends a request with a token. Returns the status code and the audit annotations.
    async fn show(&self, token: &str) -> (u16, Value) {
        self.log.take();
        let request = http::Request::get("/api").header("authorization", format!("Bearer {token}"));
        let request = request.body(bytes::Bytes::new()).unwrap();
        let code = self.api.server.handle_unauthenticated(request).await.status().as_u16();
        let events = self.log.take();
        let event = events.into_iter().rfind(|event| event["stage"] != "RequestReceived").expect("an event");
        (code, event["annotations"].clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_mounted_token_that_should_have_been_read_again_is_noted() {
    let (audited, _) = start_with_tokens().await;
    let api = &audited.api;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.post("/api/v1/namespaces/default/pods", pod).await.created();
    let of_pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": of_pod}});
    let made = api.post(path, request).await.created();
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    let claims: Value = claims_of(&token);
    let issued = claims["iat"].as_i64().unwrap();
    assert_eq!(claims["kubernetes.io"]["warnafter"], issued + 3607);
    assert_eq!(claims["exp"], issued + 365 * 24 * 3600);
    let stale = "authentication.k8s.io/stale-token";
    assert_eq!(audited.show(&token).await.1.get(stale), None);
    api.clock.sleep(Duration::from_secs(3700)).await;
    let (code, annotations) = audited.show(&token).await;
    let text = "subject: system:serviceaccount:default:default, seconds after warning threshold: 93";
    assert_eq!((code, &annotations[stale]), (200, &json!(text)));
    let metrics = api.get("/metrics").await.text;
    for line in ["serviceaccount_stale_tokens_total 1\n", "serviceaccount_valid_tokens_total 1\n"] {
        assert!(metrics.contains(line), "{line}");
    }
    let short = json!({"spec": {"expirationSeconds": 600, "boundObjectRef": of_pod}});
    let made = api.post(path, short).await.created();
    let claims = claims_of(made["status"]["token"].as_str().unwrap());
    assert_eq!(claims["kubernetes.io"].get("warnafter"), None, "the token is not extended");
}

/// Returns a token's claims without verifying it.
fn claims_of(token: &str) -> Value {
    use base64::Engine;
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn rejected_tokens_are_recorded_too() {
    let (audited, signer) = start_with_tokens().await;
    let api = &audited.api;
    let token = crate::legacy_tokens::token(api, &signer).await;
    crate::legacy_tokens::keep(api, &token).await;
    let subject = json!("system:serviceaccount:default:default");
    let (code, annotations) = audited.show(&token).await;
    assert_eq!(code, 200);
    assert_eq!(annotations["authentication.k8s.io/legacy-token"], subject);
    assert_eq!(annotations["authentication.k8s.io/legacy-token-manual-secret"], "t");
    let label = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2024-12-31"}}});
    api.merge("/api/v1/namespaces/default/secrets/t", label).await.ok();
    api.clock.sleep(Duration::from_secs(10)).await;
    let (code, annotations) = audited.show(&token).await;
    assert_eq!(code, 401);
    let expected = json!({
        "authentication.k8s.io/legacy-token": subject,
        "authentication.k8s.io/legacy-token-invalidated": "t/default",
    });
    assert_eq!(annotations, expected);
}

#[tokio::test(start_paused = true)]
async fn deprecated_api_requests_are_counted_with_the_removal_release() {
    let features = Features::enabled_by(|feature| feature == "StorageVersionMigrator");
    let change = |config: Config| config.with_features(features);
    let Audited { api, log } = start_with("- {level: Metadata}", Mode::Blocking, change).await;
    let listed = api.get("/apis/storagemigration.k8s.io/v1alpha1/storageversionmigrations").await;
    let warning = "storagemigration.k8s.io/v1alpha1 StorageVersionMigration is deprecated in v1.33+, unavailable in \
                   v1.36+";
    assert!(listed.warnings.iter().any(|found| found.contains(warning)), "{:?}", listed.warnings);
    let annotations = log.last()["annotations"].clone();
    assert_eq!(annotations["k8s.io/deprecated"], "true");
    assert_eq!(annotations["k8s.io/removed-release"], "1.36");
    api.get("/api/v1/namespaces/default/endpoints").await.ok();
    let annotations = log.last()["annotations"].clone();
    assert_eq!(annotations["k8s.io/deprecated"], "true");
    assert_eq!(annotations.get("k8s.io/removed-release"), None);
    let metrics = api.get("/metrics").await.text;
    let line = "apiserver_requested_deprecated_apis{group=\"storagemigration.k8s.io\",removed_release=\"1.36\",\
                resource=\"storageversionmigrations\",subresource=\"\",version=\"v1alpha1\"} 1\n";
    assert!(metrics.contains(line), "{line}");
}
