//! The lifecycle of plain objects.

use serde_json::json;

use crate::client::{Api, names, summary};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn a_new_server_has_the_system_namespaces() {
    let api = Api::start().await;
    let namespaces = api.get("/api/v1/namespaces").await.ok();
    assert_eq!(names(&namespaces), ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_lives_from_create_to_delete() {
    let api = Api::start().await;
    let created = api.config_map("a", json!({})).await;
    let meta = &created["metadata"];
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(meta["creationTimestamp"], "2025-01-01T00:00:00Z");
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_eq!(meta["namespace"], "default");

    assert_eq!(api.get(&format!("{MAPS}/a")).await.ok(), created);
    let patched = api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "2"}})).await.ok();
    assert_eq!(patched["data"]["k"], "2");
    assert_ne!(patched["metadata"]["resourceVersion"], meta["resourceVersion"]);

    let deleted = api.delete(&format!("{MAPS}/a")).await.ok();
    assert_eq!(deleted["status"], "Success");
    assert_eq!(deleted["details"]["uid"], meta["uid"]);
    let gone = api.get(&format!("{MAPS}/a")).await;
    assert_eq!(gone.refusal(), (404, "NotFound", "configmaps \"a\" not found"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_every_change_once() {
    let api = Api::start().await;
    let list = api.get(MAPS).await.ok();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap().to_string();
    api.config_map("a", json!({})).await;
    api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "2"}})).await.ok();
    api.delete(&format!("{MAPS}/a")).await.ok();
    let events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={from}"), 3).await;
    assert_eq!(summary(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_range_without_a_name_names_itself() {
    let api = Api::start().await;
    let path = "/api/v1/namespaces/default/limitranges";
    let made = api.post(path, json!({"spec": {"limits": []}})).await.created();
    assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 36);
    assert_eq!(api.post("/api/v1/namespaces/default/secrets", json!({})).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn events_of_both_groups_are_refused_as_one_kind() {
    let api = Api::start().await;
    let refused = api.post("/apis/events.k8s.io/v1/namespaces/default/events", json!({})).await.expect(422);
    assert_eq!(refused["details"]["kind"], "Event");
    assert_eq!(refused["details"]["group"], serde_json::Value::Null);
}
