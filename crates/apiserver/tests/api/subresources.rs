//! Subresources.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::Config;
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::egress::in_process::InProcess;

use crate::client::Api;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn pod(api: &Api, node: &str) -> Value {
    api.default_service_account().await;
    let pod = json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node},
    });
    api.post(PODS, pod).await.created()
}

async fn deployment(api: &Api) -> Value {
    let deployment = json!({
        "metadata": {"name": "a"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    api.post(DEPLOYMENTS, deployment).await.created()
}

#[tokio::test(start_paused = true)]
async fn a_binding_assigns_a_pod_once() {
    let api = Api::start().await;
    pod(&api, "").await;
    let binding = |name: &str, node: &str| json!({"metadata": {"name": name, "annotations": {"x": "y"}}, "target": {"kind": "Node", "name": node}});
    let bound = api.post(&format!("{PODS}/a/binding"), binding("a", "n1")).await.created();
    assert_eq!((&bound["status"], &bound["code"]), (&json!("Success"), &json!(201)));
    let pod = api.get(&format!("{PODS}/a")).await.ok();
    assert_eq!(pod["spec"]["nodeName"], "n1");
    assert_eq!(pod["metadata"]["annotations"], json!({"x": "y"}));
    assert_eq!(pod["metadata"]["generation"], 1);
    let condition = json!([{
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }]);
    assert_eq!(pod["status"]["conditions"], condition);
    let twice = api.post(&format!("{PODS}/a/binding"), binding("a", "n2")).await;
    assert_eq!(
        twice.refusal(),
        (
            409,
            "Conflict",
            "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""
        )
    );
    assert_eq!(api.post(&format!("{PODS}/a/binding"), binding("b", "n2")).await.code, 400);
    assert_eq!(api.post(&format!("{PODS}/none/binding"), binding("none", "n2")).await.code, 404);
    let nowhere = api.post(&format!("{PODS}/a/binding"), binding("a", "")).await;
    assert_eq!(nowhere.refusal(), (500, "", "target.name: Required value"));
}

#[tokio::test(start_paused = true)]
async fn a_binding_can_be_posted_by_itself_and_be_particular() {
    let api = Api::start().await;
    let pod = pod(&api, "").await;
    let mut binding = json!({"metadata": {"name": "a", "uid": "other"}, "target": {"name": "n1"}});
    let bindings = "/api/v1/namespaces/default/bindings";
    assert_eq!(api.post(bindings, binding.clone()).await.code, 409);
    binding["metadata"]["uid"] = pod["metadata"]["uid"].clone();
    api.post(bindings, binding).await.created();
    assert_eq!(api.get(&format!("{PODS}/a")).await.ok()["spec"]["nodeName"], "n1");
    assert_eq!(api.get(bindings).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_marks_and_deletes() {
    let api = Api::start().await;
    pod(&api, "n").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    let mut dry = eviction.clone();
    dry["deleteOptions"] = json!({"dryRun": ["All"]});
    api.post(&format!("{PODS}/a/eviction"), dry).await.created();
    assert_eq!(api.get(&format!("{PODS}/a")).await.ok()["metadata"]["deletionTimestamp"], Value::Null);
    api.post(&format!("{PODS}/a/eviction"), eviction.clone()).await.created();
    let going = api.get(&format!("{PODS}/a")).await.ok();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let condition = &going["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"], &condition["message"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"))
    );
    let mut other = eviction;
    other["deleteOptions"] = json!({"preconditions": {"uid": "other"}});
    assert_eq!(api.post(&format!("{PODS}/a/eviction"), other).await.code, 409);
    assert_eq!(api.get(&format!("{PODS}/a/eviction")).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_read_replaced_and_patched() {
    let api = Api::start().await;
    let created = deployment(&api).await;
    let path = format!("{DEPLOYMENTS}/a/scale");
    let scale = api.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=a"}));
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);

    let put = json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}});
    assert_eq!(api.put(&path, put).await.ok()["spec"]["replicas"], 3);
    let stale = json!({
        "metadata": {"name": "a", "resourceVersion": created["metadata"]["resourceVersion"]},
        "spec": {"replicas": 4},
    });
    assert_eq!(api.put(&path, stale).await.code, 409);
    let replace = json!([{"op": "replace", "path": "/spec/replicas", "value": 6}]);
    assert_eq!(api.patch("json", &path, replace).await.ok()["spec"]["replicas"], 6);
    let dry = json!({"spec": {"replicas": 9}});
    assert_eq!(api.merge(&format!("{path}?dryRun=All"), dry).await.ok()["spec"]["replicas"], 9);
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/a")).await.ok()["spec"]["replicas"], 6);

    for (body, code) in [
        (json!({"metadata": {"name": "b"}, "spec": {"replicas": 1}}), 400),
        (json!({"metadata": {"name": "a"}, "spec": {"replicas": -1}}), 422),
        (json!({"metadata": {"name": "a", "uid": "other"}, "spec": {"replicas": 1}}), 409),
        (json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}), 400),
    ] {
        assert_eq!(api.put(&path, body.clone()).await.code, code, "{body}");
    }
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/none/scale")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn unknown_subresources_are_not_found() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    for part in ["status", "scale", "b/c"] {
        let path = format!("/api/v1/namespaces/default/configmaps/a/{part}");
        assert_eq!(api.get(&path).await.code, 404, "{part}");
    }
    pod(&api, "").await;
    let status = api.get(&format!("{PODS}/a/status")).await.ok();
    assert_eq!(status["kind"], "Pod");
    assert_eq!(api.delete(&format!("{PODS}/a/status")).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn logs_and_terminals_report_what_is_missing() {
    let egress = EgressConfig { dial: Arc::new(InProcess::default()), ..EgressConfig::default() };
    let api = Api::start_changed(|config| Config { egress, ..config }).await;
    api.default_service_account().await;
    pod(&api, "").await;
    let node = json!({"metadata": {"name": "bare"}});
    api.post("/api/v1/nodes", node).await.created();
    for node in ["gone", "bare"] {
        let name = format!("on-{node}");
        let containers = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
        let spec = json!({"containers": containers, "nodeName": node});
        api.post(PODS, json!({"metadata": {"name": name}, "spec": spec})).await.created();
    }
    let silent = api.get_as("*/*", &format!("{PODS}/a/log")).await;
    assert_eq!((silent.code, silent.content_type.as_str(), silent.text.as_str()), (204, "", ""));
    for (path, code, message) in [
        ("a/log?sinceTime=yesterday", 400, "parsing time"),
        ("a/log?stream=All", 422, "PodLogOptions \"a\" is invalid: stream: Forbidden: may not be specified"),
        ("a/log?tailLines=x", 400, "strconv.ParseInt"),
        ("a/log?container=z", 400, "container z is not valid for pod a"),
        ("a/portforward?ports=80,x", 400, "cannot convert to []int32"),
        ("a/exec", 400, "pod a does not have a host assigned"),
        ("on-gone/log", 400, "a container name must be specified for pod on-gone, choose one of: [c d]"),
        ("on-gone/log?container=c", 404, "pods \"gone\" not found"),
        ("on-gone/attach?container=c", 404, "pods \"gone\" not found"),
        ("on-bare/log?container=c", 500, "no preferred addresses found; known addresses: []"),
    ] {
        let refused = api.get(&format!("{PODS}/{path}")).await;
        assert_eq!(refused.code, code, "{path}: {}", refused.text);
        assert!(refused.refusal().2.starts_with(message), "{path}: {}", refused.text);
    }
    for (node, code) in [("gone:10250", 404), ("bare:10250", 500), ("a:b:c:d", 400)] {
        assert_eq!(api.get(&format!("/api/v1/nodes/{node}/proxy/")).await.code, code, "{node}");
    }
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    api.merge("/api/v1/nodes/bare/status", addresses).await.ok();
    let exec = format!("{PODS}/on-bare/exec?container=c");
    assert_eq!(api.get(&exec).await.refusal().2, "Upgrade request required");
    let upgrade = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("accept", "text/html")];
    let unreachable = api.ask(Method::POST, &exec, &upgrade, "").await;
    let why = "error dialing backend: dial tcp 10.0.0.9:10250: connect: connection refused";
    assert_eq!(unreachable.refusal(), (500, "", why));
}
