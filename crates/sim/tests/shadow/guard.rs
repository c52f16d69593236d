//! Guarded clients: the requests they send and the responses they return.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::{Client, Clock, Key, Kind, Rng, Runnable, Runtime};
use setpoint_shadow::{Config, Counts, REVIEWS, Shadow, reviewer};

/// The requests that reached the API server.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

fn answer(code: u16, body: &Value) -> Response<Body> {
    let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
    answer.expect("an answer")
}

/// An API server with one pod that records its requests.
fn server(log: &Log) -> kube::Client {
    let log = log.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let path = request.uri().path().to_owned();
            log.0.lock().push(format!("{} {path}", request.method()));
            let pod = json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "shop", "uid": "1", "resourceVersion": "5"}});
            Ok::<_, Infallible>(match path.as_str() {
                "/api/v1/namespaces/shop/pods/a" => answer(200, &pod),
                "/api/v1/namespaces/shop/pods" => answer(200, &json!({"items": [pod]})),
                "/api/v1/namespaces/shop" => answer(200, &json!({"metadata": {"name": "shop"}})),
                _ => answer(404, &json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
            })
        }
    });
    kube::Client::new(service, "default")
}

fn shadow() -> Shadow {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    Shadow::new(Config::default(), Runtime { clock, rng: Rng::seeded(1) }, Metrics::new())
}

fn pods() -> Kind {
    Kind::new("", "v1", "Pod", "pods", true)
}

#[tokio::test(start_paused = true)]
async fn no_write_is_sent() {
    let (log, shadow) = (Log::default(), shadow());
    let kube = shadow.guard(server(&log));
    let client = Client::new(kube.clone()).with_user_agent("kube-controller-manager/test-controller");
    let (kind, a) = (pods(), Key::namespaced("shop", "a"));
    let status = json!({"metadata": {"name": "a"}, "status": {"phase": "Failed"}});

    let named = json!({"metadata": {"name": "b"}});
    client.create(&kind, Some("shop"), &named).await.expect("answered");
    let generated = json!({"metadata": {"generateName": "web-"}});
    let made = client.create(&kind, Some("shop"), &generated).await.expect("answered");
    assert!(made.key().name().starts_with("web-") && !made.meta().uid.is_empty());
    client.update(&kind, &a, Subresource::Status, &status).await.expect("answered");
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    for patch in [Patch::merge(&labels), Patch::strategic(&labels), Patch::apply(&kind, &a, "me", labels)] {
        let patched = client.patch(&kind, &a, Subresource::None, patch).await.expect("answered");
        assert_eq!(patched.meta().label("x"), Some("y"));
    }
    client.post(&kind, &a, Subresource::Eviction, &json!({})).await.expect("answered");
    client.delete(&kind, &a, &DeleteOptions::of_uid("1")).await.expect("answered");
    client.delete_collection(&kind, Some("shop"), &DeleteOptions::default()).await.expect("answered");
    let events = Kind::new("", "v1", "Event", "events", true);
    client.create_ignoring_response(&events, Some("shop"), &named).await.expect("answered");
    for (method, path) in [
        ("PUT", "/api/v1/namespaces/shop/finalize"),
        ("POST", "/api/v1/namespaces/shop/serviceaccounts/a/token"),
        ("POST", "/api/v1/namespaces/shop/pods/a/binding"),
        ("POST", REVIEWS[0]),
        ("TRACE", "/"),
        ("GET", "/api/v1/namespaces/shop/pods/a/exec"),
        ("GET", "/api/v1/nodes/a/proxy/run"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::from(b"{}".to_vec()));
        kube.send(request.expect("a request")).await.expect("answered");
    }
    let sent = log.0.lock().clone();
    assert!(sent.iter().all(|line| line.starts_with("GET ")), "{sent:#?}");
    assert!(!sent.iter().any(|line| line.contains("exec") || line.contains("proxy")), "{sent:#?}");
    let counts = shadow.report().controllers["test-controller"];
    assert_eq!((counts.intended, counts.events), (7, 1), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_answered_as_the_api_server_would() {
    let (log, shadow) = (Log::default(), shadow());
    let client = Client::new(shadow.guard(server(&log)));
    let (kind, a, b) = (pods(), Key::namespaced("shop", "a"), Key::namespaced("shop", "b"));
    let exists = client.create(&kind, Some("shop"), &json!({"metadata": {"name": "a"}})).await.unwrap_err();
    assert!(exists.is_already_exists(), "{exists}");
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "4"}, "spec": {"x": 1}});
    let conflict = client.update(&kind, &a, Subresource::None, &stale).await.unwrap_err();
    assert_eq!(conflict.code(), Some(409), "{conflict}");
    assert!(client.update(&kind, &b, Subresource::None, &stale).await.unwrap_err().is_not_found());
    let other = client.delete(&kind, &a, &DeleteOptions::of_uid("2")).await.unwrap_err();
    assert_eq!(other.code(), Some(409), "{other}");
    assert!(client.delete(&kind, &b, &DeleteOptions::default()).await.unwrap_err().is_not_found());
    let json_patch = client.patch(&kind, &a, Subresource::None, Patch::json(&json!([]))).await.unwrap_err();
    assert_eq!(json_patch.code(), Some(415), "{json_patch}");
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_creates_reviews_and_nothing_else() {
    let log = Log::default();
    let client = reviewer(server(&log));
    for (method, path) in [
        ("POST", REVIEWS[0]),
        ("POST", REVIEWS[1]),
        ("POST", "/api/v1/namespaces/shop/pods"),
        ("DELETE", REVIEWS[0]),
        ("GET", "/version"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        client.send(request.expect("a request")).await.expect("answered");
    }
    let expected = [format!("POST {}", REVIEWS[0]), format!("POST {}", REVIEWS[1]), "GET /version".into()];
    assert_eq!(*log.0.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_same_write_again_is_the_same_intention() {
    let (log, shadow) = (Log::default(), shadow());
    let client = Client::new(shadow.guard(server(&log))).with_user_agent("a/test");
    let (kind, a) = (pods(), Key::namespaced("shop", "a"));
    let patch = |value: &str| Patch::merge(&json!({"metadata": {"labels": {"x": value}}}));
    for _ in 0..1000 {
        client.patch(&kind, &a, Subresource::None, patch("1")).await.expect("answered");
    }
    assert_eq!((shadow.pending(), shadow.report().controllers["test"].intended), (1, 1));
    client.patch(&kind, &a, Subresource::None, patch("2")).await.expect("answered");
    let expected = Counts { intended: 2, superseded: 1, pending: 1, ..Counts::default() };
    assert_eq!((shadow.pending(), shadow.report().controllers["test"]), (1, expected));
}

#[tokio::test(start_paused = true)]
async fn missing_writes_are_reported_once() {
    let (log, shadow) = (Log::default(), shadow());
    let kube = shadow.guard(server(&log));
    let client = Client::new(kube.clone()).with_user_agent("a/test");
    let patch = || Patch::merge(&json!({"metadata": {"labels": {"x": "1"}}}));
    let stop = tokio_util::sync::CancellationToken::new();
    let verifier: Box<dyn Runnable> = Box::new(shadow.verifier(kube));
    let running = tokio::spawn(verifier.run(stop.clone()));
    for _ in 0..5 {
        client
            .patch(&pods(), &Key::namespaced("shop", "a"), Subresource::None, patch())
            .await
            .expect("answered");
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
    stop.cancel();
    running.await.expect("it ends");
    let report = shadow.report();
    assert_eq!(report.controllers["test"].differences, 1, "{}", report.table());
    let [found] = &report.differences[..] else { panic!("{}", report.table()) };
    assert_eq!((found.object().as_str(), found.count), ("pods shop/a", 5));
    assert_eq!(found.fields[0].path, "metadata.labels");
    assert!(!report.is_clean());
}
