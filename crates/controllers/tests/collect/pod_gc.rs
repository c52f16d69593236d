//! Pods that nothing else removes.

use serde_json::{Value, json};
use setpoint::client::PropagationPolicy::Background;
use setpoint::client::Subresource;
use setpoint_controllers::Options;

use super::cluster::{cluster, cluster_with};

/// Pods need service accounts.
const CONTROLLERS: &[&str] = &["podgc", "serviceaccount"];

fn pod(node: &str, finalizers: &[&str]) -> Value {
    let mut pod = json!({
        "metadata": {"finalizers": finalizers},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

#[test]
fn a_pod_whose_node_is_gone_is_marked_failed_and_deleted() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Node", "there", json!({})).await;
        cluster.create("Pod", "lost", pod("gone", &["example.com/hold"])).await;
        cluster.create("Pod", "found", pod("there", &[])).await;
        cluster.pass(35).await;
        assert!(cluster.get("Pod", "lost").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
        cluster.pass(40).await;
        let lost = cluster.get("Pod", "lost").await.expect("it is held");
        assert!(!lost["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(lost["status"]["phase"], "Failed");
        let condition = &lost["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("DisruptionTarget"), &json!("True")));
        assert_eq!(condition["reason"], "DeletionByPodGC");
        assert_eq!(condition["message"], "PodGC: node no longer exists");
        assert!(cluster.has("Pod", "found").await);
    });
}

#[test]
fn a_deleted_pod_that_was_never_scheduled_goes() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Pod", "p", pod("", &["example.com/hold"])).await;
        cluster.pass(25).await;
        cluster.delete("Pod", "p", Background).await;
        cluster.pass(25).await;
        let p = cluster.get("Pod", "p").await.expect("it is held");
        assert_eq!(p["status"]["phase"], "Failed");
        cluster.patch("Pod", "p", Subresource::None, json!({"metadata": {"finalizers": null}})).await;
        assert!(!cluster.has("Pod", "p").await);
    });
}

#[test]
fn a_deleted_pod_on_a_node_out_of_service_goes() {
    cluster(CONTROLLERS, async |cluster| {
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
        cluster.create("Node", "down", json!({"spec": {"taints": [taint]}})).await;
        cluster.create("Pod", "p", pod("down", &[])).await;
        cluster.create("Pod", "q", pod("down", &[])).await;
        cluster.delete("Pod", "p", Background).await;
        cluster.pass(25).await;
        assert!(!cluster.has("Pod", "p").await);
        assert!(cluster.has("Pod", "q").await, "it has not been deleted");
    });
}

#[test]
fn excess_finished_pods_are_deleted() {
    let options = Options { terminated_pod_threshold: 2, ..Options::default() };
    cluster_with(CONTROLLERS, options, async |cluster| {
        cluster.create("Node", "there", json!({})).await;
        for name in ["a", "b", "c", "d"] {
            cluster.create("Pod", name, pod("there", &[])).await;
            cluster.patch("Pod", name, Subresource::Status, json!({"status": {"phase": "Succeeded"}})).await;
            cluster.pass(1).await;
        }
        cluster.pass(25).await;
        let mut left = Vec::new();
        for name in ["a", "b", "c", "d"] {
            left.extend(cluster.has("Pod", name).await.then_some(name));
        }
        assert_eq!(left, ["c", "d"]);
    });
}
