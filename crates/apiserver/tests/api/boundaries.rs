//! How failures are contained: panics, deadlines, headers that cannot be decoded.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request};
use serde_json::{Value, json};
use setpoint_apiserver::admission::{Plugin, Review};
use setpoint_apiserver::auth::rbac::{RoleRef, Rule};
use setpoint_apiserver::auth::{Attributes, Authorizer, Decision, UserRules};
use setpoint_apiserver::{Config, Status, User};
use setpoint_clock::Clock;
use setpoint_store::MemoryStore;

use crate::client::{Answer, Api};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(change: impl FnOnce(Config) -> Config) -> Api {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    Api::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, change).await
}

/// Allows everything, and panics on requests for something named `panic`.
struct Panicking;

impl Authorizer for Panicking {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        assert!(!attributes.path.ends_with("/panic"), "a bug in a handler");
        std::future::ready(Decision::allow("")).boxed()
    }

    fn rules<'a>(&'a self, _: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        std::future::ready(UserRules::default()).boxed()
    }

    fn role<'a>(&'a self, _: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_response() {
    let api = start(|config| Config { authorizer: Arc::new(Panicking), ..config }).await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = api.ask(method.clone(), &format!("{MAPS}/panic"), &[], "").await;
        assert_eq!(answer.code, 500, "{method}");
        assert_eq!(answer.text, "This request caused apiserver to panic. Look in the logs for details.\n");
    }
    api.config_map("a", json!({})).await;
    let metrics = api.get("/metrics").await.text;
    let counted = metrics.lines().find_map(|line| line.strip_prefix("setpoint_apiserver_panics_total "));
    assert!(counted.unwrap().parse::<u64>().unwrap() >= 3);
}

/// Takes a minute and a half for every object.
struct Ponderous(Clock);

impl Plugin for Ponderous {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.is_for("", "configmaps")
    }

    async fn check(&self, _: &Review<'_>, _: Option<&Value>, _: Option<&Value>) -> Result<(), Status> {
        self.0.sleep(Duration::from_secs(90)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_answered_and_its_write_is_whole_or_absent() {
    let api = start(|config| {
        let slow = Box::new(Ponderous(config.clock.clone()));
        Config { admission: vec![slow], ..config }
    })
    .await;
    let map = json!({"metadata": {"name": "a"}});
    let began = api.clock.now();
    let by_handler = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    let by_filter = "Timeout: request did not complete within the allotted timeout";
    let (json_type, text_type) = ("application/json", "text/plain; charset=utf-8");
    for (query, seconds, why, content_type) in [
        ("", 34, by_handler, json_type),
        ("?timeout=5s", 5, by_filter, text_type),
        ("?timeout=1h", 34, by_handler, json_type),
        ("?timeout=0s", 34, by_handler, json_type),
    ] {
        let before = api.clock.now();
        let answer = api.post(&format!("{MAPS}{query}"), map.clone()).await;
        assert_eq!(answer.refusal(), (504, "Timeout", why), "{query}");
        assert_eq!(answer.content_type, content_type, "{query}");
        assert_eq!(answer.body.get("kind").is_some(), content_type == json_type, "{query}");
        assert_eq!(api.clock.now().duration_since(before).as_secs(), seconds, "{query}");
    }
    assert!(api.clock.now() > began);
    api.clock.sleep(Duration::from_secs(90)).await;
    assert_eq!(
        api.get(&format!("{MAPS}/a")).await.code,
        404,
        "no write happens after the client got its response"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_collection_may_take_as_long_as_a_request() {
    struct Thoughtful(Clock);
    impl Plugin for Thoughtful {
        fn handles(&self, review: &Review<'_>) -> bool {
            review.is_for("", "configmaps")
        }

        async fn mutate_deletion(&self, _: &Review<'_>, _: &Value) -> Result<(), Status> {
            self.0.sleep(Duration::from_secs(50)).await;
            Ok(())
        }
    }
    let api = start(|config| {
        let slow = Box::new(Thoughtful(config.clock.clone()));
        Config { admission: vec![slow], ..config }
    })
    .await;
    api.post(MAPS, json!({"metadata": {"name": "a"}})).await.created();
    assert_eq!(api.delete(&format!("{MAPS}/a")).await.code, 504, "one object has the time of a handler");
    api.clock.sleep(Duration::from_secs(50)).await;
    api.get(&format!("{MAPS}/a")).await.ok();
    api.delete(MAPS).await.ok();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_no_duration_is_rejected() {
    let api = start(|config| config).await;
    let refused = api.get(&format!("{MAPS}?timeout=soon")).await;
    let why = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    assert_eq!(refused.refusal(), (400, "BadRequest", why));
}

async fn impersonating(api: &Api, header: &'static str, value: &[u8]) -> Answer {
    let mut request = Request::builder().uri("/api/v1/namespaces/kube-system/secrets");
    request = request.header("impersonate-user", "juergen");
    let mut request = request.body(bytes::Bytes::new()).unwrap();
    request.headers_mut().insert(header, HeaderValue::from_bytes(value).unwrap());
    Answer::read(api.server.handle(api.user.clone(), request).await).await
}

#[tokio::test(start_paused = true)]
async fn impersonation_never_fails_open() {
    let api = Api::start_with_roles().await;
    let named = impersonating(&api, "impersonate-user", "Jürgen".as_bytes()).await;
    assert_eq!(named.code, 403);
    assert!(named.refusal().2.contains("User \"Jürgen\" cannot list resource"), "{}", named.text);
    for header in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
        let refused = impersonating(&api, header, b"J\xfcrgen").await;
        let why = format!("the value of the header {header} is not UTF-8");
        assert_eq!(refused.refusal(), (400, "BadRequest", why.as_str()));
    }
}
