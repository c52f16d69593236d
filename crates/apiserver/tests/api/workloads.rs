//! Workload kinds and their policies from a client's perspective.

use serde_json::{Value, json};

use crate::client::Api;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn job() -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test(start_paused = true)]
async fn a_job_is_labelled_and_selected_by_its_uid() {
    let api = Api::start().await;
    let created = api.post(JOBS, job()).await.created();
    let uid = &created["metadata"]["uid"];
    assert_eq!(created["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], *uid);
    assert_eq!(created["metadata"]["labels"], created["spec"]["template"]["metadata"]["labels"]);
    let refused = api.merge(&format!("{JOBS}/a"), json!({"spec": {"completions": 5}})).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["field"]),
        (422, &json!("spec.completions"))
    );
}

#[tokio::test(start_paused = true)]
async fn deleting_a_job_without_a_policy_warns_that_its_pods_stay() {
    let api = Api::start().await;
    for (query, warnings) in [("", 1), ("?propagationPolicy=Background", 0)] {
        api.post(JOBS, job()).await.created();
        let deleted = api.delete(&format!("{JOBS}/a{query}")).await;
        assert_eq!((deleted.code, deleted.warnings.len()), (200, warnings), "{query}");
        // A Job that orphans its pods waits for the garbage collector.
        api.merge(&format!("{JOBS}/a"), json!({"metadata": {"finalizers": null}})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn both_versions_of_an_autoscaler_are_one_object() {
    let api = Api::start().await;
    let path =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let old = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
    let created = api.post(&path("v1"), old).await.created();
    assert_eq!(created["spec"]["targetCPUUtilizationPercentage"], 80);
    let mut new = api.get(&format!("{}/a", path("v2"))).await.ok();
    assert_eq!(new["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    new["spec"]["metrics"] = json!([memory]);
    api.put(&format!("{}/a", path("v2")), new).await.ok();
    let old = api.get(&format!("{}/a", path("v1"))).await.ok();
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], Value::Null);
    let scaled = api.merge(&format!("{}/a", path("v1")), json!({"spec": {"maxReplicas": 5}})).await.ok();
    assert_eq!(scaled["spec"]["maxReplicas"], 5);
    assert_eq!(api.get(&format!("{}/a", path("v2"))).await.ok()["spec"]["metrics"], json!([memory]));
    let groups = api.get("/apis/autoscaling").await.ok();
    assert_eq!(groups["preferredVersion"]["version"], "v2");
}

#[tokio::test(start_paused = true)]
async fn every_workload_that_has_replicas_is_scaled_alike() {
    let api = Api::start().await;
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (path, selector) in [
        ("/api/v1/namespaces/default/replicationcontrollers", json!({"app": "a"})),
        ("/apis/apps/v1/namespaces/default/statefulsets", json!({"matchLabels": {"app": "a"}})),
        ("/apis/apps/v1/namespaces/default/replicasets", json!({"matchLabels": {"app": "a"}})),
    ] {
        let workload =
            json!({"metadata": {"name": "a"}, "spec": {"selector": selector, "template": template}});
        api.post(path, workload).await.created();
        let scale = api.merge(&format!("{path}/a/scale"), json!({"spec": {"replicas": 4}})).await.ok();
        assert_eq!(
            (&scale["spec"]["replicas"], &scale["status"]["selector"]),
            (&json!(4), &json!("app=a")),
            "{path}"
        );
        let scaled = api.get(&format!("{path}/a")).await.ok();
        assert_eq!(
            (&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]),
            (&json!(4), &json!(2)),
            "{path}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn deprecated_apis_warn_every_client() {
    let api = Api::start().await;
    let listed = api.get("/api/v1/namespaces/default/endpoints").await;
    assert_eq!(listed.warnings.len(), 1);
    assert!(listed.warnings[0].contains("use discovery.k8s.io/v1 EndpointSlice"), "{:?}", listed.warnings);
    let components = api.get("/api/v1/componentstatuses").await;
    assert_eq!(components.warnings.len(), 1);
    assert_eq!(components.ok()["items"][0]["metadata"]["name"], "etcd-0");
    assert_eq!(api.get("/api/v1/componentstatuses/etcd-0").await.ok()["kind"], "ComponentStatus");
    assert_eq!(
        api.get("/api/v1/componentstatuses/x").await.refusal(),
        (404, "NotFound", "componentstatus \"x\" not found")
    );
}

#[tokio::test(start_paused = true)]
async fn the_phase_of_a_volume_has_a_transition_time() {
    let api = Api::start().await;
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}});
    let created = api.post(volumes, volume).await.created();
    assert_eq!(created["status"]["lastPhaseTransitionTime"], "2025-01-01T00:00:00Z");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let bound = api.merge(&format!("{volumes}/v/status"), json!({"status": {"phase": "Bound"}})).await.ok();
    assert_eq!(bound["status"]["lastPhaseTransitionTime"], "2025-01-01T00:01:00Z");
    let moved = api.merge(&format!("{volumes}/v"), json!({"spec": {"hostPath": {"path": "/b"}}})).await;
    assert_eq!(moved.body["details"]["causes"][0]["field"], "spec.persistentvolumesource");
}

#[tokio::test(start_paused = true)]
async fn connections_are_checked_before_they_are_refused() {
    let api = Api::start().await;
    api.default_service_account().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.post(pods, pod.clone()).await.created();
    assert_eq!(api.get(&format!("{pods}/none/log")).await.code, 404);
    assert_eq!(api.get(&format!("{pods}/a/log")).await.code, 204);
    assert_eq!(api.get(&format!("{pods}/a/log?tailLines=-1")).await.code, 422);
    assert_eq!(
        api.get(&format!("{pods}/a/log?container=x")).await.refusal(),
        (400, "BadRequest", "container x is not valid for pod a")
    );
    assert_eq!(
        api.post(&format!("{pods}/a/exec?command=ls"), json!({})).await.refusal(),
        (400, "BadRequest", "pod a does not have a host assigned")
    );
    assert_eq!(api.get("/api/v1/namespaces/default/services/x/proxy/y/z").await.code, 404);
    let mut scheduled = pod;
    scheduled["metadata"]["name"] = "b".into();
    scheduled["spec"]["nodeName"] = "n".into();
    api.post(pods, scheduled).await.created();
    assert_eq!(api.get(&format!("{pods}/b/log")).await.refusal(), (404, "NotFound", "pods \"n\" not found"));
}
