//! Server-side apply from a client's perspective.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::User;
use setpoint_clock::Clock;
use setpoint_store::{Change, Expect, Inset, MemoryStore, Payload, Resource, Store, Write};

use crate::client::{Answer, Api};

const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/a";

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

async fn apply(api: &Api, path: &str, query: &str, body: impl ToString) -> Answer {
    let headers = [("content-type", "application/apply-patch+yaml")];
    api.ask(Method::PATCH, &format!("{path}?{query}"), &headers, body.to_string()).await
}

fn owners(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().map(|entry| entry["manager"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_updates_or_changes_nothing() {
    let api = Api::start().await;
    let created = apply(&api, MAP, "fieldManager=m1", map(json!({"a": "1"}))).await.created();
    assert_eq!(owners(&created), ["m1"]);
    let same = apply(&api, MAP, "fieldManager=m1", map(json!({"a": "1"}))).await.ok();
    assert_eq!(same, created);
    let changed = apply(
        &api,
        MAP,
        "fieldManager=m1",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: x}\n",
    );
    assert_eq!(changed.await.ok()["data"], json!({"b": "x"}));
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_reported_with_their_fields_and_can_be_forced() {
    let api = Api::start().await;
    apply(&api, MAP, "fieldManager=m1", map(json!({"a": "1"}))).await.created();
    let refused = apply(&api, MAP, "fieldManager=m2", map(json!({"a": "2"}))).await.expect(409);
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"m1\": .data.a");
    assert_eq!(
        refused["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.a"}])
    );
    let forced = apply(&api, MAP, "fieldManager=m2&force=true", map(json!({"a": "2"}))).await.ok();
    assert_eq!((forced["data"]["a"].as_str(), owners(&forced)), (Some("2"), vec!["m2"]));
}

#[tokio::test(start_paused = true)]
async fn other_writes_are_noted_by_their_manager_or_user_agent() {
    let api = Api::start().await;
    let headers = [("user-agent", "mytool/1.0")];
    let created = api.ask(
        Method::POST,
        "/api/v1/namespaces/default/configmaps",
        &headers,
        map(json!({"a": "1"})).to_string(),
    );
    assert_eq!(owners(&created.await.created()), ["mytool"]);
    let patched = api.merge(&format!("{MAP}?fieldManager=other"), json!({"data": {"b": "2"}})).await.ok();
    assert_eq!(owners(&patched), ["mytool", "other"]);
    for empty in [json!([{}]), json!([])] {
        apply(&api, MAP, "fieldManager=m", map(json!({"b": "2"}))).await.ok();
        let forgotten = api.merge(MAP, json!({"metadata": {"managedFields": empty}})).await.ok();
        assert_eq!(owners(&forgotten), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn owners_are_forgotten_where_an_object_would_become_too_large_with_them() {
    let api = Api::start().await;
    let data: serde_json::Map<String, Value> =
        (0..3500).map(|index| (format!("{index:0>240}"), json!("A"))).collect();
    let created = api.post("/api/v1/namespaces/default/configmaps", map(json!(data))).await.created();
    assert_eq!(owners(&created), [""; 0]);
    let refused = apply(&api, MAP, "fieldManager=m", map(json!({"b": "2"}))).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (500, Some("etcdserver: request is too large"))
    );
}

#[tokio::test(start_paused = true)]
async fn writes_of_the_control_plane_have_managed_fields() {
    let mut api = Api::start().await;
    api.user = User::system("system:kube-controller-manager");
    let headers =
        [("user-agent", "kube-controller-manager/v1.34.11 (linux/amd64) kubernetes/x/replicaset-controller")];
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = api.ask(Method::POST, maps, &headers, map(json!({"a": "1"})).to_string()).await.created();
    assert_eq!(owners(&created), ["kube-controller-manager"]);
    let refused = apply(&api, MAP, "fieldManager=m", map(json!({"a": "2"}))).await;
    assert_eq!(
        refused.body["details"]["causes"][0]["message"],
        "conflict with \"kube-controller-manager\" using v1"
    );
    let namespace = api.get("/api/v1/namespaces/default").await.ok();
    assert_eq!(owners(&namespace), ["kube-apiserver"], "objects created at startup");
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_shown_wherever_an_object_is() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces/default/configmaps", map(json!({"a": "1"}))).await.created();
    let got = api.get(MAP).await.ok();
    let shown = got["metadata"]["managedFields"].clone();
    assert_eq!(shown[0]["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));
    let listed = api.get("/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=a").await.ok();
    assert_eq!(listed["items"][0]["metadata"]["managedFields"], shown);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = api.ask(Method::GET, MAP, &[("accept", table)], "").await.ok();
    assert_eq!(table["rows"][0]["object"]["metadata"]["managedFields"], shown);
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partial = api.ask(Method::GET, MAP, &[("accept", partial)], "").await.ok();
    assert_eq!(partial["metadata"]["managedFields"], shown);
    let tested = json!([{"op": "test", "path": "/metadata/managedFields/0/operation", "value": "Update"}]);
    let json_patch = [("content-type", "application/json-patch+json")];
    api.ask(Method::PATCH, MAP, &json_patch, tested.to_string()).await.ok();
}

#[tokio::test(start_paused = true)]
async fn bindings_and_evictions_add_no_field_managers() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}}))
        .await
        .created();
    let pod = json!({"metadata": {"name": "p", "finalizers": ["a.b/c"]}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = api.post("/api/v1/namespaces/default/pods", pod).await.created();
    let path = "/api/v1/namespaces/default/pods/p";
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    api.post(&format!("{path}/binding"), binding).await.created();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    api.post(&format!("{path}/eviction"), eviction).await.created();
    let evicted = api.get(path).await.ok();
    assert_eq!(evicted["status"]["conditions"][1]["type"], "DisruptionTarget");
    assert_eq!(evicted["metadata"]["managedFields"], created["metadata"]["managedFields"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_keeps_version_and_times() {
    let api = Api::start().await;
    let created = api.post("/api/v1/namespaces/default/configmaps", map(json!({"a": "1"}))).await.created();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let again = api.put(MAP, created.clone()).await.ok();
    assert_eq!(again, created);
    let applied = apply(&api, MAP, "fieldManager=m", map(json!({"a": "1"}))).await.ok();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    assert_eq!(apply(&api, MAP, "fieldManager=m", map(json!({"a": "1"}))).await.ok(), applied);
}

#[tokio::test(start_paused = true)]
async fn labels_can_be_applied_through_the_status_of_most_kinds() {
    let api = Api::start().await;
    api.default_service_account().await;
    let pods = "/api/v1/namespaces/default/pods/a";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    apply(&api, pods, "fieldManager=m1", &pod).await.created();
    let labels = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"b": "two"}}});
    let labelled = apply(&api, &format!("{pods}/status"), "fieldManager=m2", labels).await.ok();
    assert_eq!(labelled["metadata"]["labels"], json!({"b": "two"}));
    assert_eq!(owners(&labelled), ["m1", "m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_scale_that_is_applied_owns_the_replicas() {
    let api = Api::start().await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    apply(&api, DEPLOYMENT, "fieldManager=m1", deployment).await.created();
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 7}});
    let path = format!("{DEPLOYMENT}/scale");
    let refused = apply(&api, &path, "fieldManager=scaler", &scale).await.expect(409);
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas");
    let scaled = apply(&api, &path, "fieldManager=scaler&force=true", &scale).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 7);
    let deployment = api.get(DEPLOYMENT).await.ok();
    assert_eq!(deployment["spec"]["replicas"], 7);
    let entries = deployment["metadata"]["managedFields"].as_array().unwrap().clone();
    let scaler = entries.iter().find(|entry| entry["manager"] == "scaler").unwrap();
    assert_eq!(scaler["subresource"], "scale");
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

/// Permission to scale does not include permission to set labels, owners or finalizers.
#[tokio::test(start_paused = true)]
async fn a_scale_that_is_applied_changes_no_metadata() {
    let api = Api::start().await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    api.post("/apis/apps/v1/namespaces/default/deployments", deployment).await.created();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    let metadata = json!({"name": "a", "labels": {"l": "1"}, "annotations": {"n": "1"}, "finalizers": ["e.com/f"], "ownerReferences": [owner]});
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 7}});
    apply(&api, &format!("{DEPLOYMENT}/scale"), "fieldManager=scaler&force=true", &scale).await.ok();
    let deployment = api.get(DEPLOYMENT).await.ok();
    assert_eq!(deployment["spec"]["replicas"], 7);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        assert_eq!(deployment["metadata"][field], Value::Null, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_owned_apart_from_the_rest() {
    let api = Api::start().await;
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
    api.post("/api/v1/nodes?fieldManager=admin", node).await.created();
    let path = "/api/v1/nodes/n/status?fieldManager=kubelet";
    let node = api.merge(path, json!({"status": {"phase": "Running"}})).await.ok();
    assert_eq!(owners(&node), ["admin", "kubelet"]);
    assert_eq!(node["metadata"]["managedFields"][1]["subresource"], "status");
}

#[tokio::test(start_paused = true)]
async fn invalid_apply_requests_are_rejected() {
    let api = Api::start().await;
    let check = async |query: &str, body: Value, code: u16, message: &str| {
        let answer = apply(&api, MAP, query, body).await.expect(code);
        assert_eq!(answer["message"], message);
    };
    let required =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    check("", map(json!({})), 422, required).await;
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    check("fieldManager=m", other, 400, "invalid object type: /v1, Kind=Secret").await;
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let undeterminable = "the name of the object (a based on URL) was undeterminable: name must be provided";
    check("fieldManager=m", nameless, 400, undeterminable).await;
    let mut odd = map(json!({}));
    odd["nope"] = 1.into();
    let undeclared =
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .nope: field not declared in schema";
    check("fieldManager=m", odd, 500, undeclared).await;
}

#[tokio::test(start_paused = true)]
async fn quota_usage_is_managed_by_the_server() {
    let api = Api::start().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"count/configmaps": "5"});
    api.post(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.created();
    let status = json!({"status": {"hard": hard, "used": {"count/configmaps": "0"}}});
    api.merge(&format!("{quotas}/q/status?fieldManager=quota"), status).await.ok();
    api.config_map("a", json!({})).await;
    let quota = api.get(&format!("{quotas}/q")).await.ok();
    let entries = quota["metadata"]["managedFields"].as_array().unwrap();
    let own =
        entries.iter().find(|entry| entry["manager"] == "kube-apiserver").expect("the server is a manager");
    assert_eq!(own["subresource"], "status");
    assert_eq!(own["fieldsV1"], json!({"f:status": {"f:used": {"f:count/configmaps": {}}}}));
}

/// Earlier versions stored managed fields inside the objects. Writes that do not mention them must not lose them.
#[tokio::test(start_paused = true)]
async fn managed_fields_of_an_earlier_version_are_kept() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let api = Api::start_on(store.clone(), clock).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    apply(&api, DEPLOYMENT, "fieldManager=m1", &deployment).await.created();
    let key = Resource::new("apps/deployments").key("default/a");
    for write in ["status", "whole", "patch"] {
        let record = store.get(&key, None).await.unwrap().unwrap();
        let Payload { bytes, stamp_at, inset, facts, .. } = record.payload();
        let (before, after) = bytes.split_at(stamp_at.unwrap());
        let mut inside = before.to_vec();
        inset.write(&mut inside);
        inside.extend_from_slice(after);
        let (inset_at, inset) = (None, Inset::default());
        let payload = Payload { bytes: inside.into(), stamp_at, inset_at, inset, facts };
        let (expect, change) = (Expect::Revision(record.modified), Change::Put { payload, ttl: None });
        store.commit(Write { key: key.clone(), expect, change }).await.unwrap();
        let shown = api.get(DEPLOYMENT).await.ok();
        assert!(owners(&shown).contains(&"m1"), "{write}: {:?}", owners(&shown));
        let mut sent = shown.clone();
        sent["metadata"].as_object_mut().unwrap().remove("managedFields");
        sent["status"] = json!({"replicas": 1, "observedGeneration": write.len()});
        sent["spec"]["replicas"] = json!(write.len());
        let written = match write {
            "status" => api.put(&format!("{DEPLOYMENT}/status"), sent).await,
            "whole" => api.put(DEPLOYMENT, sent).await,
            _ => api.merge(DEPLOYMENT, json!({"spec": {"replicas": 7}})).await,
        };
        let written = written.ok();
        assert!(owners(&written).contains(&"m1"), "{write}: {:?}", owners(&written));
        let record = store.get(&key, None).await.unwrap().unwrap();
        assert!(
            !record.inset.is_empty() && !String::from_utf8_lossy(&record.value).contains("managedFields")
        );
    }
}
