//! Quotas: creates are counted before they are stored.

use serde_json::{Value, json};

use crate::client::Api;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, requests: Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": requests}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

/// Starts a server whose `default` namespace has this quota, with nothing used.
async fn with_quota(spec: Value) -> Api {
    let api = Api::start().await;
    api.default_service_account().await;
    api.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": spec})).await.created();
    let hard = &spec["hard"];
    let used: serde_json::Map<String, Value> =
        hard.as_object().unwrap().keys().map(|name| (name.clone(), "0".into())).collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    api.merge(&format!("{QUOTAS}/q/status"), status).await.ok();
    api
}

async fn used(api: &Api) -> Value {
    api.get(&format!("{QUOTAS}/q")).await.ok()["status"]["used"].clone()
}

#[tokio::test(start_paused = true)]
async fn creates_beyond_the_quota_are_rejected() {
    let api = with_quota(json!({"hard": {"pods": "2", "requests.cpu": "1"}})).await;
    api.post(PODS, pod("a", json!({"cpu": "600m"}))).await.created();
    assert_eq!(used(&api).await, json!({"pods": "1", "requests.cpu": "600m"}));
    let refused = api.post(PODS, pod("b", json!({"cpu": "500m"}))).await;
    let message = "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: \
                   requests.cpu=600m, limited: requests.cpu=1";
    assert_eq!(refused.refusal(), (403, "Forbidden", message));
    let refused = api.post(PODS, pod("b", json!({}))).await;
    let message = "pods \"b\" is forbidden: failed quota: q: must specify requests.cpu for: c";
    assert_eq!(refused.refusal(), (403, "Forbidden", message));
    api.post(PODS, pod("b", json!({"cpu": "400m"}))).await.created();
    assert_eq!(api.post(PODS, pod("c", json!({"cpu": "0"}))).await.code, 403);
    assert_eq!(used(&api).await, json!({"pods": "2", "requests.cpu": "1"}));
}

#[tokio::test(start_paused = true)]
async fn concurrent_creates_do_not_exceed_the_quota() {
    let api = with_quota(json!({"hard": {"count/configmaps": "5"}})).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let creations = (0..20).map(|at| api.post(path, json!({"metadata": {"name": format!("m{at}")}})));
    let codes: Vec<u16> =
        futures::future::join_all(creations).await.iter().map(|answer| answer.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    assert_eq!(used(&api).await, json!({"count/configmaps": "5"}));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_and_a_change_count_nothing() {
    let api = with_quota(json!({"hard": {"secrets": "1"}})).await;
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "a"}});
    api.post(&format!("{path}?dryRun=All"), secret.clone()).await.created();
    assert_eq!(used(&api).await, json!({"secrets": "0"}));
    api.post(path, secret).await.created();
    api.merge(&format!("{path}/a"), json!({"stringData": {"k": "v"}})).await.ok();
    assert_eq!(used(&api).await, json!({"secrets": "1"}));
    assert_eq!(api.post(&format!("{path}?dryRun=All"), json!({"metadata": {"name": "b"}})).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_only_objects_in_its_scopes() {
    let api = with_quota(json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]})).await;
    assert_eq!(api.post(PODS, pod("a", json!({}))).await.code, 403);
    api.post(PODS, pod("a", json!({"cpu": "1"}))).await.created();
}

#[tokio::test(start_paused = true)]
async fn creates_are_rejected_until_the_quota_has_a_status() {
    let api = Api::start().await;
    api.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "1"}}})).await.created();
    api.merge(&format!("{QUOTAS}/q/status"), json!({"status": {"hard": {"secrets": "1"}}})).await.ok();
    let refused = api.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "a"}})).await;
    let message = "secrets \"a\" is forbidden: status unknown for quota: q, resources: secrets";
    assert_eq!(refused.refusal(), (403, "Forbidden", message));
}

/// The storage that a claim was allocated is used whether or not there is room for it.
#[tokio::test(start_paused = true)]
async fn the_status_of_a_claim_is_charged_and_not_refused() {
    let api = with_quota(json!({"hard": {"requests.storage": "10Gi"}})).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}}}});
    api.post(claims, claim).await.created();
    for (allocated, expected) in [("8Gi", "8Gi"), ("20Gi", "20Gi"), ("6Gi", "20Gi")] {
        let status = json!({"status": {"allocatedResources": {"storage": allocated}}});
        api.merge(&format!("{claims}/c/status"), status).await.ok();
        assert_eq!(used(&api).await, json!({"requests.storage": expected}), "{allocated}");
    }
}
