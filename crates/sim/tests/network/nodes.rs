//! Nodes that stop reporting, and taints that evict pods.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::Subresource;
use setpoint_cluster::Components;
use setpoint_sim::World;

use super::scenarios::{create, found, parts, patch, survives, survives_with, until};

/// A pod that tolerates a taint for a few seconds.
async fn patient_pod(world: &World) {
    let tolerate =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    let keys = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready", "mine"];
    let spec = json!({
        "nodeName": "n",
        "containers": [{"name": "c", "image": "i"}],
        "tolerations": keys.map(tolerate),
    });
    // Its node is not simulated: without the finalizer, the pod would be removed immediately when it is deleted.
    create(world, "Pod", "p", json!({"metadata": {"finalizers": ["example.com/hold"]}, "spec": spec})).await;
}

fn is(object: &Value, condition: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == status))
}

fn expelled(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string() && is(pod, "DisruptionTarget", "True")
}

fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == key && taint["effect"] == effect))
}

/// A node reports that it is ready, and never reports again.
fn silence(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        patient_pod(world).await;
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        patch(world, "Pod", "p", Subresource::Status, ready.clone()).await;
        patch(world, "Node", "n", Subresource::Status, ready).await;
        until(world, "Node", "n", |node| is(node, "Ready", "Unknown")).await;
        until(world, "Node", "n", |node| has_taint(node, "node.kubernetes.io/unreachable", "NoSchedule"))
            .await;
        until(world, "Node", "n", |node| has_taint(node, "node.kubernetes.io/unreachable", "NoExecute"))
            .await;
        until(world, "Pod", "p", |pod| is(pod, "Ready", "False") && expelled(pod)).await;
    }
    .boxed_local()
}

#[test]
fn a_silent_node_survives_every_crash_and_every_stale_or_hidden_event() {
    // Another node keeps reporting: if no node does, none is considered down.
    let parts = Components { nodes: 1, ..parts(&["nodelifecycle", "taint-eviction-controller"]) };
    survives_with("a silent node", parts, silence);
}

/// A user taints a node.
fn taint(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        patient_pod(world).await;
        let taints = json!([{"key": "mine", "effect": "NoExecute"}]);
        patch(world, "Node", "n", Subresource::None, json!({"spec": {"taints": taints}})).await;
        until(world, "Pod", "p", expelled).await;
    }
    .boxed_local()
}

#[test]
fn eviction_by_taint_survives_crashes_and_stale_events() {
    survives("eviction by taint", &["taint-eviction-controller"], taint);
}

/// One of two taints is tolerated forever, and the other is removed in time.
#[test]
fn a_pod_stays_when_the_taint_that_it_tolerates_for_a_while_is_removed() {
    World::simulate(1, parts(&["taint-eviction-controller"]), Vec::new(), async |world| {
        found(world).await;
        let tolerations = json!([
            {"key": "brief", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "long", "operator": "Exists", "effect": "NoExecute"},
        ]);
        let spec =
            json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "tolerations": tolerations});
        create(world, "Pod", "p", json!({"metadata": {"finalizers": ["example.com/hold"]}, "spec": spec}))
            .await;
        let taint = |key: &str| json!({"key": key, "effect": "NoExecute"});
        let both = json!([taint("brief"), taint("long")]);
        patch(world, "Node", "n", Subresource::None, json!({"spec": {"taints": both}})).await;
        world.pass(Duration::from_secs(30)).await;
        patch(world, "Node", "n", Subresource::None, json!({"spec": {"taints": [taint("long")]}})).await;
        world.pass(Duration::from_secs(120)).await;
        until(world, "Pod", "p", |pod| pod["metadata"]["deletionTimestamp"].is_null()).await;
    });
}

/// A node reports that it is not ready, then stops reporting.
#[test]
fn an_unready_node_that_stops_reporting_gets_the_unreachable_taint() {
    // Without a healthy node none would be tainted.
    let parts = Components { nodes: 1, ..parts(&["nodelifecycle"]) };
    World::simulate(1, parts, Vec::new(), async |world| {
        found(world).await;
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        patch(world, "Node", "n", Subresource::Status, not_ready).await;
        let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
        until(world, "Node", "n", |node| has_taint(node, not_ready, "NoExecute")).await;
        until(world, "Node", "n", |node| is(node, "Ready", "Unknown")).await;
        until(world, "Node", "n", |node| has_taint(node, unreachable, "NoExecute")).await;
        until(world, "Node", "n", |node| !has_taint(node, not_ready, "NoExecute")).await;
    });
}

/// A node that reports itself as not ready can also report on its pods.
#[test]
fn the_pods_of_a_node_that_reports_are_left_to_it() {
    World::simulate(1, parts(&["nodelifecycle"]), Vec::new(), async |world| {
        world.pass(Duration::from_secs(6)).await;
        found(world).await;
        patient_pod(world).await;
        let status = |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        patch(world, "Pod", "p", Subresource::Status, status("True")).await;
        patch(world, "Node", "n", Subresource::Status, status("False")).await;
        until(world, "Node", "n", |node| has_taint(node, "node.kubernetes.io/not-ready", "NoSchedule")).await;
        world.pass(Duration::from_secs(20)).await;
        until(world, "Pod", "p", |pod| is(pod, "Ready", "True")).await;
    });
}

/// If no node at all is ready, the controller may be disconnected, so no pod is evicted.
#[test]
fn no_pod_is_evicted_while_no_node_is_ready() {
    World::simulate(1, parts(&["nodelifecycle"]), Vec::new(), async |world| {
        found(world).await;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        patch(world, "Node", "n", Subresource::Status, ready).await;
        until(world, "Node", "n", |node| is(node, "Ready", "Unknown")).await;
        world.pass(Duration::from_secs(60)).await;
        until(world, "Node", "n", |node| !has_taint(node, "node.kubernetes.io/unreachable", "NoExecute"))
            .await;
    });
}
