//! Requests that are forwarded to extension API servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use setpoint_apiserver::aggregation::AggregationConfig;
use setpoint_apiserver::egress::{Cidr, EgressConfig, GuardedTcp};
use setpoint_apiserver::{Config, FlowSettings, User};

use crate::client::Answer;
use crate::extension_server::{API_SERVICES, Aggregated, GIZMOS, NAME, SLICES, ok, pieces, reply, whole};

fn gizmo() -> Value {
    json!({"apiVersion": "ext.example.com/v1", "kind": "Gizmo", "metadata": {"name": "g"}})
}

#[tokio::test(start_paused = true)]
async fn a_request_arrives_with_the_identity_that_the_server_has_established() {
    let aggregated = Aggregated::start(|_, _| ok(&gizmo())).await;
    let mut user = User::authenticated("bob", "bob-uid", vec!["system:masters".into(), "devs".into()]);
    user.extra.insert("scopes".into(), vec!["a".into(), "b".into()]);
    let request = Request::post(format!("{GIZMOS}?fieldManager=m&dryRun=All&a=x%20y"))
        .header("content-type", "application/json")
        .header("x-custom", "kept")
        .header("authorization", "Bearer secret")
        .header("x-remote-user", "admin")
        .header("x-remote-group", "system:masters")
        .header("x-remote-extra-forged", "x")
        .header("x-forwarded-host", "forged")
        .header("connection", "close, x-hop")
        .header("x-hop", "1")
        .body(Bytes::from(gizmo().to_string()))
        .unwrap();
    let answer = Answer::read(aggregated.api.server.handle(user, request).await).await;
    assert_eq!(answer.ok(), gizmo());
    let arrived = aggregated.extension.take();
    let [arrived] = arrived.as_slice() else { panic!("{arrived:?}") };
    assert_eq!(arrived.head.method, Method::POST);
    assert_eq!(arrived.head.uri.path(), GIZMOS);
    assert_eq!(arrived.head.uri.query(), Some("a=x+y&dryRun=All&fieldManager=m"));
    assert_eq!(arrived.body, gizmo().to_string());
    assert_eq!(arrived.client.as_deref(), Some("front-proxy-client"));
    for (name, expected) in [
        ("x-remote-user", &["bob"][..]),
        ("x-remote-uid", &["bob-uid"]),
        ("x-remote-group", &["system:masters", "devs", "system:authenticated"]),
        ("x-remote-extra-scopes", &["a", "b"]),
        ("x-remote-extra-forged", &[]),
        ("authorization", &[]),
        ("x-hop", &[]),
        ("x-custom", &["kept"]),
        ("x-forwarded-host", &["192.0.2.7:8443"]),
        ("x-forwarded-proto", &["https"]),
        ("x-forwarded-uri", &[GIZMOS]),
    ] {
        assert_eq!(arrived.header(name), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_backend_gets_the_impersonated_user() {
    let aggregated = Aggregated::start(|_, _| ok(&gizmo())).await;
    let headers = [("impersonate-user", "eve"), ("impersonate-group", "system:masters")];
    aggregated.api.ask(Method::GET, GIZMOS, &headers, "").await.ok();
    let arrived = aggregated.extension.take().remove(0);
    assert_eq!(arrived.header("x-remote-user"), ["eve"]);
    assert_eq!(arrived.header("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert!(arrived.head.headers.keys().all(|name| !name.as_str().starts_with("impersonate-")));
    // An identity that cannot be sent is not shortened to one that can.
    let user = User::authenticated("a", "", vec!["system:masters".into(), "b\nc".into()]);
    let request = Request::get(GIZMOS).body(Bytes::new()).unwrap();
    let refused = Answer::read(aggregated.api.server.handle(user, request).await).await;
    assert_eq!(refused.code, 503);
    assert!(refused.text.contains("invalid header field value"), "{}", refused.text);
    assert!(aggregated.extension.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_method_status_and_header_passes_as_it_is() {
    let aggregated = Aggregated::start(|head, _| {
        let mut response = reply(418, &json!({"method": head.method.as_str()}));
        response.headers_mut().insert("x-from", "ext".parse().unwrap());
        response.headers_mut().insert("warning", "299 - \"from the extension\"".parse().unwrap());
        response.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
        response.headers_mut().insert("connection", "x-hop".parse().unwrap());
        response.headers_mut().insert("x-hop", "1".parse().unwrap());
        std::future::ready(Ok(response)).boxed()
    })
    .await;
    let object = format!("{GIZMOS}/g");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] {
        let method: Method = method.parse().unwrap();
        let response = aggregated.api.send(method.clone(), &object, &[], "").await;
        assert_eq!(response.status(), 418, "{method}");
        assert_eq!(response.headers()["x-from"], "ext");
        assert_eq!(response.headers()["warning"], "299 - \"from the extension\"");
        for gone in ["access-control-allow-origin", "x-hop", "connection"] {
            assert!(!response.headers().contains_key(gone), "{gone}");
        }
        let body = response.into_body().collect().await;
        assert_eq!(body.is_empty(), method == Method::HEAD, "{method}");
    }
    assert_eq!(aggregated.extension.take().len(), 7);
    // Below a resource anything may follow.
    let below = aggregated.api.get(&format!("{GIZMOS}/g/sub/deeper//x%2Fy/")).await;
    assert_eq!(below.code, 418);
    let arrived = aggregated.extension.take().remove(0);
    assert_eq!(arrived.head.uri.path(), format!("{GIZMOS}/g/sub/deeper//x/y/"));
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_an_error_unless_redirects_are_allowed() {
    let redirecting = |head: http::request::Parts, _: Bytes| match head.uri.path() {
        "/apis/ext.example.com/v1" => ok(&json!({})),
        _ => {
            let mut response = Response::new(whole("elsewhere"));
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", "/apis/elsewhere".parse().unwrap());
            std::future::ready(Ok(response)).boxed()
        }
    };
    let aggregated = Aggregated::start_changed(redirecting, |config| config).await;
    aggregated.register().await;
    let refused = aggregated.api.send(Method::GET, GIZMOS, &[], "").await;
    assert_eq!(refused.status(), 502);
    assert!(!refused.headers().contains_key("location"));
    let answer = Answer::read(refused).await;
    assert_eq!(answer.text, "the backend attempted to redirect this request, which is not permitted");
    assert_eq!(answer.content_type, "text/plain; charset=utf-8");

    let allowing = |config: Config| {
        let aggregation = AggregationConfig { rejects_redirects: false, ..config.aggregation };
        Config { aggregation, ..config }
    };
    let aggregated = Aggregated::start_changed(redirecting, allowing).await;
    aggregated.register().await;
    let passed = aggregated.api.send(Method::GET, GIZMOS, &[], "").await;
    assert_eq!(passed.status(), 302);
    assert_eq!(passed.headers()["location"], "https://192.0.2.7:8443/apis/elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_delivered_as_it_happens() {
    let aggregated = Aggregated::start(|head, _| {
        assert_eq!(head.uri.query(), Some("watch=1"));
        let events = stream::unfold(0_u32, |at| async move {
            tokio::time::sleep(Duration::from_secs(100)).await;
            Some((Ok(Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{{\"at\":{at}}}}}\n"))), at + 1))
        });
        std::future::ready(Ok(Response::new(pieces(events)))).boxed()
    })
    .await;
    let began = aggregated.api.clock.instant();
    let mut events = aggregated.api.open_watch(&format!("{GIZMOS}?watch=1")).await;
    for at in 0..5_u64 {
        assert_eq!(events.next().await.unwrap()["object"]["at"], at);
        let passed = aggregated.api.clock.instant() - began;
        // Longer than a request may take, and not held back until the end.
        assert_eq!(passed.as_secs(), 100 * (at + 1));
    }
    drop(events);
    aggregated.until_open(1).await;
}

/// Produces chunks without end, and counts the bytes.
fn flood(produced: &Arc<AtomicUsize>) -> impl futures::Stream<Item = std::io::Result<Bytes>> + use<> {
    let produced = produced.clone();
    stream::repeat_with(move || {
        produced.fetch_add(16 << 10, Ordering::SeqCst);
        Ok(Bytes::from(vec![7; 16 << 10]))
    })
}

#[tokio::test(start_paused = true)]
async fn a_response_is_read_only_as_fast_as_the_client_takes_it() {
    let produced = Arc::<AtomicUsize>::default();
    let counting = produced.clone();
    let aggregated = Aggregated::start(move |_, _| {
        std::future::ready(Ok(Response::new(pieces(flood(&counting).take(1000))))).boxed()
    })
    .await;
    let response = aggregated.api.send(Method::GET, GIZMOS, &[], "").await;
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = produced.load(Ordering::SeqCst);
    assert!(before < 1 << 20, "{before} bytes are in transit");
    let mut taken = first.len();
    while let Some(frame) = body.frame().await {
        taken += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(taken, 1000 * (16 << 10));
}

#[tokio::test(start_paused = true)]
async fn trailers_follow_the_body() {
    let aggregated = Aggregated::start(|head, _| {
        assert_eq!(head.headers["te"], "trailers");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        let frames = [Ok(Frame::data(Bytes::from_static(b"body"))), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        response.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        std::future::ready(Ok(response)).boxed()
    })
    .await;
    let response = aggregated.api.send(Method::GET, GIZMOS, &[("te", "trailers")], "").await;
    assert_eq!(response.headers()["trailer"], "x-sum");
    let collected = BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "42");
    assert_eq!(collected.to_bytes(), "body");
}

#[tokio::test(start_paused = true)]
async fn authorization_precedes_the_unavailable_error() {
    let aggregated = Aggregated::start_changed(|_, _| ok(&json!({})), Config::with_roles).await;
    aggregated.api.post(API_SERVICES, aggregated.api_service("ext.example.com", "v1")).await.created();
    for path in [GIZMOS, "/apis/ext.example.com/v1", "/apis/ext.example.com/v1/"] {
        let refused = aggregated.api.get(path).await;
        assert_eq!((refused.code, &*refused.text), (503, "service unavailable\n"), "{path}");
        assert_eq!(refused.content_type, "text/plain; charset=utf-8");
    }
    let stranger = User::authenticated("stranger", "", Vec::new());
    let request = Request::get(GIZMOS).body(Bytes::new()).unwrap();
    let refused = Answer::read(aggregated.api.server.handle(stranger, request).await).await;
    assert_eq!(refused.refusal().1, "Forbidden");
    assert!(aggregated.extension.take_all().is_empty());
    // It counts from the moment it was written, and no longer than that.
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    assert_eq!(aggregated.api.get(GIZMOS).await.text, "404 page not found\n");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_verified_for_requests_but_not_for_probes() {
    let aggregated = Aggregated::start_changed(|_, _| ok(&gizmo()), |config| config).await;
    aggregated.expose().await;
    let mut service = aggregated.api_service("ext.example.com", "v1");
    let other = rcgen::generate_simple_self_signed(["ext.default.svc".to_owned()]).unwrap().cert.pem();
    use base64::Engine;
    service["spec"]["caBundle"] = base64::engine::general_purpose::STANDARD.encode(other).into();
    aggregated.api.post(API_SERVICES, service).await.created();
    assert_eq!(aggregated.until(NAME, "True").await["reason"], "Passed");
    let refused = aggregated.api.get(GIZMOS).await;
    assert_eq!(refused.code, 503);
    assert!(
        refused.text.starts_with("error trying to reach service: tls: failed to verify certificate: x509: "),
        "{}",
        refused.text
    );
    let insecure = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    aggregated.api.merge(&format!("{API_SERVICES}/{NAME}"), insecure).await.ok();
    assert_eq!(aggregated.api.get(GIZMOS).await.ok(), gizmo());
    let broken = json!({"spec": {"caBundle": "eHh4", "insecureSkipTLSVerify": false}});
    aggregated.api.merge(&format!("{API_SERVICES}/{NAME}"), broken).await.ok();
    let refused = aggregated.api.get(GIZMOS).await;
    let expected = "unable to load root certificates: unable to parse bytes as PEM block\n";
    assert_eq!((refused.code, &*refused.text), (500, expected));
}

#[tokio::test(start_paused = true)]
async fn a_new_client_certificate_is_shown_on_new_connections() {
    let aggregated = Aggregated::start(|_, _| ok(&gizmo())).await;
    aggregated.api.get(GIZMOS).await.ok();
    let now = setpoint_clock::Clock::system().now();
    let renewed = aggregated.clients.client_certificate("renewed", &[], now).unwrap();
    aggregated.identity.replace(renewed.certificate, renewed.key);
    aggregated.api.get(GIZMOS).await.ok();
    let clients: Vec<_> = aggregated.extension.take().into_iter().map(|one| one.client.unwrap()).collect();
    assert_eq!(clients, ["front-proxy-client", "renewed"]);
}

#[tokio::test(start_paused = true)]
async fn connections_are_reused_until_the_api_service_changes() {
    let aggregated = Aggregated::start(|_, _| ok(&gizmo())).await;
    aggregated.api.get(GIZMOS).await.ok();
    aggregated.extension.dialed.lock().clear();
    for _ in 0..10 {
        aggregated.api.get(GIZMOS).await.ok();
    }
    assert!(aggregated.extension.dialed.lock().is_empty());
    let port = json!({"spec": {"insecureSkipTLSVerify": true, "caBundle": null}});
    aggregated.api.merge(&format!("{API_SERVICES}/{NAME}"), port).await.ok();
    aggregated.api.get(GIZMOS).await.ok();
    assert!(!aggregated.extension.dialed.lock().is_empty());
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    aggregated.api.get("/apis/other/v1/x").await;
    aggregated.until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn requests_follow_the_endpoints_of_the_service() {
    let aggregated = Aggregated::start(|_, _| ok(&gizmo())).await;
    let moved = json!({"endpoints": [
        {"addresses": ["192.0.2.8"], "conditions": {"ready": true}},
        {"addresses": ["192.0.2.9"], "conditions": {"ready": false}}]});
    aggregated.api.merge(&format!("{SLICES}/ext"), moved).await.ok();
    for _ in 0..5 {
        aggregated.api.get(GIZMOS).await.ok();
    }
    let hosts: Vec<_> =
        aggregated.extension.take().iter().map(|one| one.header("x-forwarded-host")[0].to_owned()).collect();
    assert_eq!(hosts, vec!["192.0.2.8:8443"; 5]);
    let gone = json!({"endpoints": [{"addresses": ["192.0.2.8"], "conditions": {"ready": false}}]});
    aggregated.api.merge(&format!("{SLICES}/ext"), gone).await.ok();
    let refused = aggregated.api.get(GIZMOS).await;
    assert_eq!((refused.code, &*refused.text), (503, "service unavailable\n"));
}

#[tokio::test(start_paused = true)]
async fn denied_addresses_are_not_dialed() {
    let denying = |config: Config| {
        let dial = Arc::new(GuardedTcp::new(Cidr::link_local()));
        Config { egress: EgressConfig { dial, ..EgressConfig::default() }, ..config }
    };
    let aggregated = Aggregated::start_changed(|_, _| ok(&json!({})), denying).await;
    aggregated.expose().await;
    let metadata_server = json!({"endpoints": [{"addresses": ["169.254.169.254"]}]});
    aggregated.api.merge(&format!("{SLICES}/ext"), metadata_server).await;
    // EndpointSlices refuse link-local addresses themselves, but not a name that leads there.
    let named = json!({"spec": {"type": "ExternalName", "externalName": "169.254.169.254", "ports": null}});
    aggregated.api.merge("/api/v1/namespaces/default/services/ext", named).await.ok();
    aggregated.api.post(API_SERVICES, aggregated.api_service("ext.example.com", "v1")).await.created();
    let condition = aggregated.until(NAME, "False").await;
    assert_eq!(condition["reason"], "FailedDiscoveryCheck");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("dial tcp 169.254.169.254:443: the address is in a denied range"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_ends_at_its_deadline() {
    let aggregated = Aggregated::start_changed(
        |head, _| match head.uri.path() {
            "/apis/ext.example.com/v1" if head.headers["x-remote-user"] == "system:kube-aggregator" => {
                ok(&json!({}))
            }
            _ => std::future::pending().boxed(),
        },
        |config| config,
    )
    .await;
    aggregated.register().await;
    let clock = aggregated.api.clock.clone();
    let timed = async |path: &str| {
        let began = clock.instant();
        let answer = aggregated.api.get(path).await;
        (answer, clock.instant() - began)
    };
    let (answer, took) = timed(GIZMOS).await;
    assert_eq!((answer.refusal().1, took), ("Timeout", Duration::from_secs(60)));
    let (answer, took) = timed(&format!("{GIZMOS}?timeout=3s")).await;
    assert_eq!((answer.code, took), (504, Duration::from_secs(3)));
    // Discovery has less time, so that one server does not hold up clients that read the documents of all.
    let (answer, took) = timed("/apis/ext.example.com/v1").await;
    assert_eq!((answer.code, took), (503, Duration::from_secs(5)));
    assert_eq!(answer.text, "error trying to reach service: context deadline exceeded\n");
    let path = format!("{GIZMOS}?watch=1");
    let watching = aggregated.api.send(Method::GET, &path, &[], "");
    let waited = tokio::time::timeout(Duration::from_secs(600), watching).await;
    assert!(waited.is_err(), "a watch has no deadline");
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    aggregated.api.get("/apis/other/v1/x").await;
    aggregated.until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_request_holds_its_seat_until_its_response_is_sent_and_a_watch_does_not() {
    let limited = |config: Config| {
        let flow = FlowSettings { max_requests: 1, max_mutating_requests: 1, is_fair: false };
        Config { flow: Some(flow), ..config.with_roles() }
    };
    let endless = |head: http::request::Parts, _: Bytes| match head.uri.path() {
        "/apis/ext.example.com/v1" => ok(&json!({})),
        _ => {
            let first = stream::iter([Ok(Bytes::from_static(b"{}\n"))]);
            std::future::ready(Ok(Response::new(pieces(first.chain(stream::pending()))))).boxed()
        }
    };
    let aggregated = Aggregated::start_changed(endless, limited).await;
    aggregated.register().await;
    let rule = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let role = json!({"metadata": {"name": "all"}, "rules": [rule]});
    aggregated.api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.created();
    let binding = json!({"metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]});
    aggregated.api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.created();
    let get = async |path: &str| {
        let request = Request::get(path).body(Bytes::new()).unwrap();
        let bob = User::authenticated("bob", "", Vec::new());
        aggregated.api.server.handle(bob, request).await
    };
    let watches = [get(&format!("{GIZMOS}?watch=1")).await, get(&format!("{GIZMOS}?watch=1")).await];
    assert!(watches.iter().all(|watch| watch.status() == 200));
    let list = get(GIZMOS).await;
    assert_eq!(list.status(), 200);
    assert_eq!(get(GIZMOS).await.status(), 429, "the only seat is taken");
    drop(list);
    assert_eq!(get(GIZMOS).await.status(), 200);
}
