//! Pods that nothing else removes.

use serde_json::{Value, json};
use setpoint::client::Part;
use setpoint::client::Propagation::Background;
use setpoint_controllers::Options;

use super::land::{land, land_with};

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
fn a_pod_whose_node_is_gone_fails_and_goes() {
    land(CONTROLLERS, async |land| {
        land.create("Node", "there", json!({})).await;
        land.create("Pod", "lost", pod("gone", &["example.com/hold"])).await;
        land.create("Pod", "found", pod("there", &[])).await;
        land.pass(35).await;
        assert!(land.get("Pod", "lost").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
        land.pass(40).await;
        let lost = land.get("Pod", "lost").await.expect("it is held");
        assert!(!lost["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(lost["status"]["phase"], "Failed");
        let condition = &lost["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("DisruptionTarget"), &json!("True")));
        assert_eq!(condition["reason"], "DeletionByPodGC");
        assert_eq!(condition["message"], "PodGC: node no longer exists");
        assert!(land.has("Pod", "found").await);
    });
}

#[test]
fn a_deleted_pod_that_was_never_scheduled_goes() {
    land(CONTROLLERS, async |land| {
        land.create("Pod", "p", pod("", &["example.com/hold"])).await;
        land.pass(25).await;
        land.delete("Pod", "p", Background).await;
        land.pass(25).await;
        let p = land.get("Pod", "p").await.expect("it is held");
        assert_eq!(p["status"]["phase"], "Failed");
        land.patch("Pod", "p", Part::Main, json!({"metadata": {"finalizers": null}})).await;
        assert!(!land.has("Pod", "p").await);
    });
}

#[test]
fn a_deleted_pod_on_a_node_out_of_service_goes() {
    land(CONTROLLERS, async |land| {
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
        land.create("Node", "down", json!({"spec": {"taints": [taint]}})).await;
        land.create("Pod", "p", pod("down", &[])).await;
        land.create("Pod", "q", pod("down", &[])).await;
        land.delete("Pod", "p", Background).await;
        land.pass(25).await;
        assert!(!land.has("Pod", "p").await);
        assert!(land.has("Pod", "q").await, "nobody has deleted it");
    });
}

#[test]
fn too_many_ended_pods_are_cut_back() {
    let options = Options { terminated_pod_threshold: 2, ..Options::default() };
    land_with(CONTROLLERS, options, async |land| {
        land.create("Node", "there", json!({})).await;
        for name in ["a", "b", "c", "d"] {
            land.create("Pod", name, pod("there", &[])).await;
            land.patch("Pod", name, Part::Status, json!({"status": {"phase": "Succeeded"}})).await;
            land.pass(1).await;
        }
        land.pass(25).await;
        let mut left = Vec::new();
        for name in ["a", "b", "c", "d"] {
            left.extend(land.has("Pod", name).await.then_some(name));
        }
        assert_eq!(left, ["c", "d"]);
    });
}
