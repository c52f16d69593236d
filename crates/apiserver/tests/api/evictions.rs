//! Evictions and disruption budgets.

use serde_json::{Value, json};

use crate::client::{Answer, Api};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A ready pod, and a budget that allows this many disruptions.
async fn guarded(allowed: i64) -> Api {
    let api = Api::start().await;
    api.default_service_account().await;
    let pod = json!({
        "metadata": {"name": "a", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
    });
    api.post(PODS, pod).await.created();
    set_ready(&api, "True").await;
    budget(&api, "b").await;
    set_allowed(&api, "b", allowed).await;
    api
}

async fn set_ready(api: &Api, ready: &str) {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    api.merge(&format!("{PODS}/a/status"), status).await.ok();
}

async fn budget(api: &Api, name: &str) {
    let budget = json!({
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    });
    api.post(BUDGETS, budget).await.created();
}

async fn set_allowed(api: &Api, name: &str, allowed: i64) {
    let status = json!({"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3, "observedGeneration": 1});
    api.merge(&format!("{BUDGETS}/{name}/status"), json!({ "status": status })).await.ok();
}

async fn evict(api: &Api, options: Value) -> Answer {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options});
    api.post(&format!("{PODS}/a/eviction"), eviction).await
}

async fn is_leaving(api: &Api) -> bool {
    !api.get(&format!("{PODS}/a")).await.ok()["metadata"]["deletionTimestamp"].is_null()
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_blocks_an_eviction() {
    let api = guarded(0).await;
    let refused = evict(&api, Value::Null).await;
    assert_eq!(
        refused.refusal(),
        (429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    let cause = json!({"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods and has 2 currently"});
    assert_eq!(refused.body["details"]["causes"], json!([cause]));
    assert!(!is_leaving(&api).await);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_is_recorded_in_its_budget() {
    let api = guarded(1).await;
    evict(&api, json!({"dryRun": ["All"]})).await.created();
    assert_eq!(api.get(&format!("{BUDGETS}/b")).await.ok()["status"]["disruptionsAllowed"], 1);
    evict(&api, Value::Null).await.created();
    assert!(is_leaving(&api).await);
    let status = api.get(&format!("{BUDGETS}/b")).await.ok()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(status["disruptedPods"], json!({"a": "2025-01-01T00:00:00Z"}));
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_was_just_changed_is_waited_for() {
    let api = guarded(1).await;
    api.merge(&format!("{BUDGETS}/b"), json!({"spec": {"minAvailable": 2}})).await.ok();
    let refused = evict(&api, Value::Null).await;
    assert_eq!(refused.code, 429);
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 10);
    assert!(!is_leaving(&api).await);
}

#[tokio::test(start_paused = true)]
async fn an_unready_pod_is_evicted_while_the_budget_is_met() {
    let api = guarded(0).await;
    set_ready(&api, "False").await;
    evict(&api, Value::Null).await.created();
    assert!(is_leaving(&api).await);
    assert_eq!(api.get(&format!("{BUDGETS}/b")).await.ok()["status"]["disruptedPods"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn two_budgets_for_one_pod_are_an_error() {
    let api = guarded(1).await;
    budget(&api, "c").await;
    let refused = evict(&api, Value::Null).await;
    let why =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((refused.code, refused.refusal()), (500, (500, "", why)));
    assert!(!is_leaving(&api).await);
}
