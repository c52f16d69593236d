//! Requests that take too long: the client gets a 504, queued writes are completed, and no further work is done.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_apiserver::Config;
use setpoint_clock::Clock;
use setpoint_store::{Key, MemoryStore};

use crate::client::{Answer, Api, names};
use crate::paced_store::{Call, Pace, Paced};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// The request timeout, and the duration of slow store calls.
const LIMIT: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(2);

/// Counts calls for one resource, and slows them down.
#[derive(Clone, Default)]
struct Slowly(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    resource: &'static str,
    way: Way,
    calls: usize,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Way {
    #[default]
    Counted,
    Slow,
    /// Writes are slow and never succeed.
    Conflicting,
}

impl Slowly {
    fn begin(&self, resource: &'static str, way: Way) {
        *self.0.lock().unwrap() = State { resource, way, calls: 0 };
    }

    fn end(&self) {
        *self.0.lock().unwrap() = State::default();
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }
}

impl Pace for Slowly {
    fn step(&self, call: Call<'_>) -> BoxFuture<'_, ()> {
        let (resource, is_write) = match call {
            Call::Get(key) => (key.resource.as_str(), false),
            Call::List(range) => (range.resource.as_str(), false),
            Call::Commit(key) => (key.resource.as_str(), true),
        };
        let mut state = self.0.lock().unwrap();
        if state.resource != resource || (state.way == Way::Conflicting && !is_write) {
            return std::future::ready(()).boxed();
        }
        state.calls += 1;
        let pause = if state.way == Way::Counted { Duration::ZERO } else { SLOW / 2 };
        tokio::time::sleep(pause).boxed()
    }

    fn conflicts(&self, key: &Key) -> bool {
        let state = self.0.lock().unwrap();
        state.way == Way::Conflicting && state.resource == key.resource.as_str()
    }
}

async fn start() -> (Api, Slowly) {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let slowly = Slowly::default();
    let pace = slowly.clone();
    let change = |config: Config| Config {
        store: Arc::new(Paced(config.store, pace)),
        request_timeout: LIMIT,
        ..config
    };
    (Api::start_configured(store, clock, change).await, slowly)
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

#[track_caller]
fn check_timeout(answer: &Answer) {
    assert_eq!((answer.code, &answer.body["reason"]), (504, &"Timeout".into()), "{}", answer.text);
    assert_eq!(answer.body["message"], "Timeout: request did not complete within the allotted timeout");
}

/// Waits for work that is still in progress. Returns how many more slow calls it made.
async fn more_calls(slowly: &Slowly) -> usize {
    // Work in progress when the client gets its response may finish.
    tokio::time::sleep(SLOW).await;
    let calls = slowly.calls();
    tokio::time::sleep(100 * SLOW).await;
    slowly.calls() - calls
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_queued_is_stored_though_its_client_got_a_timeout() {
    let (api, slowly) = start().await;
    api.get(MAPS).await.ok();
    slowly.begin("configmaps", Way::Slow);
    let answer =
        api.ask(http::Method::POST, &format!("{MAPS}?timeout=500ms"), &[], map("a").to_string()).await;
    check_timeout(&answer);
    tokio::time::sleep(2 * SLOW).await;
    slowly.end();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.ok()["data"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn an_update_is_not_tried_again_after_its_client_got_a_timeout() {
    let (api, slowly) = start().await;
    api.post(MAPS, map("a")).await.created();
    slowly.begin("configmaps", Way::Conflicting);
    check_timeout(&api.merge(&format!("{MAPS}/a"), json!({"data": {"a": "c"}})).await);
    assert_eq!(more_calls(&slowly).await, 0);
    check_timeout(&api.delete(&format!("{MAPS}/a")).await);
    assert_eq!(more_calls(&slowly).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_not_charged_after_the_client_got_a_timeout() {
    let (api, slowly) = start().await;
    let hard = json!({"count/configmaps": "10"});
    api.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.created();
    let used = json!({"count/configmaps": "0"});
    api.merge(&format!("{QUOTAS}/q/status"), json!({"status": {"hard": hard, "used": used}})).await.ok();
    slowly.begin("resourcequotas", Way::Conflicting);
    check_timeout(&api.post(MAPS, map("a")).await);
    assert_eq!(more_calls(&slowly).await, 0);
    slowly.end();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn policies_are_not_evaluated_after_the_client_got_a_timeout() {
    let (api, slowly) = start().await;
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "true"}]}});
    api.post(&format!("{ADMISSION}/validatingadmissionpolicies"), policy).await.created();
    for at in 0..20 {
        let binding = json!({"metadata": {"name": format!("b-{at}")}, "spec": {
            "policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": "s", "namespace": "default", "parameterNotFoundAction": "Allow"}}});
        api.post(&format!("{ADMISSION}/validatingadmissionpolicybindings"), binding).await.created();
    }
    slowly.begin("secrets", Way::Slow);
    check_timeout(&api.post(MAPS, map("a")).await);
    assert!(slowly.calls() > 2, "the parameters are read one after the other");
    assert_eq!(more_calls(&slowly).await, 0);
    slowly.end();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_not_deleted_to_its_end_after_the_client_got_a_timeout() {
    let (api, slowly) = start().await;
    for at in 0..300 {
        api.post(MAPS, map(&format!("m-{at}"))).await.created();
    }
    slowly.begin("configmaps", Way::Slow);
    check_timeout(&api.delete(MAPS).await);
    assert_eq!(more_calls(&slowly).await, 0);
    slowly.end();
    let left = names(&api.get(MAPS).await.ok()).len();
    assert!((1..300).contains(&left), "{left} are left");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_not_read_to_its_end_after_the_client_got_a_timeout() {
    let (api, slowly) = start().await;
    for at in 0..300 {
        api.post(MAPS, map(&format!("m-{at}"))).await.created();
    }
    slowly.begin("configmaps", Way::Slow);
    check_timeout(&api.get(&format!("{MAPS}?limit=1&labelSelector=a=b")).await);
    assert_eq!(more_calls(&slowly).await, 0);
    check_timeout(&api.get(&format!("{MAPS}?resourceVersion=999999&timeout=1s")).await);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_selection_takes_few_reads() {
    let (api, slowly) = start().await;
    for at in 0..1000 {
        let mut map = map(&format!("m-{at:04}"));
        if at == 999 {
            map["metadata"]["labels"] = json!({"is": "last"});
        }
        api.post(MAPS, map).await.created();
    }
    slowly.begin("configmaps", Way::Counted);
    let found = api.get(&format!("{MAPS}?limit=1&labelSelector=is=last")).await.ok();
    assert_eq!(names(&found), ["m-0999"]);
    // Twice per call, before and after: 1, 2, 4, ... records.
    assert_eq!(slowly.calls(), 2 * 10);
    let some = api.get(&format!("{MAPS}?limit=3&labelSelector=!is")).await.ok();
    assert_eq!(names(&some), ["m-0000", "m-0001", "m-0002"]);
    let token = some["metadata"]["continue"].as_str().unwrap();
    let next = api.get(&format!("{MAPS}?limit=2&labelSelector=!is&continue={token}")).await.ok();
    assert_eq!(names(&next), ["m-0003", "m-0004"]);
}
