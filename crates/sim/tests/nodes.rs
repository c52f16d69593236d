//! Simulated nodes keep their heartbeat, unless they are made to fail.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use serde_json::{Value, json};
use setpoint::client::{Delete, Part, Patch};
use setpoint::{Key, Kind};
use setpoint_cluster::Parts;
use setpoint_sim::World;

fn ready(node: &Value, status: &str) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == status))
}

async fn mark(world: &World, failed: Value) {
    let patch = Patch::merge(&json!({"metadata": {"annotations": {"node.setpoint.dev/failed": failed}}}));
    let patched = world.client().patch(&Kind::of::<Node>(), &Key::cluster("node-0"), Part::Main, patch).await;
    patched.expect("the user's own call succeeds");
}

/// It falls silent and is found out; when it recovers it is as it was, and does what it left undone.
#[test]
fn a_node_that_is_made_to_fail_is_found_out_and_recovers() {
    let controllers = setpoint_controllers::selected(&["nodelifecycle", "serviceaccount"]);
    let parts = Parts {
        controllers: controllers.expect("known controllers"),
        scheduler: true,
        nodes: 1,
        ..Parts::default()
    };
    World::simulate(1, parts, Vec::new(), async |world| {
        let (nodes, pods) = (Kind::of::<Node>(), Kind::of::<Pod>());
        let (node, pod) = (Key::cluster("node-0"), Key::namespaced("default", "p"));
        let account = Key::namespaced("default", "default");
        world.until(&Kind::of::<ServiceAccount>(), &account, |account| account.is_some()).await;
        let body = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        world.create(&pods, Some("default"), body).await;
        let runs = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == "Running");
        world.until(&pods, &pod, runs).await;
        mark(world, json!("true")).await;
        world.until(&nodes, &node, |node| node.is_some_and(|node| ready(node, "Unknown"))).await;
        world.client().delete(&pods, &pod, &Delete::default()).await.expect("the user's own call succeeds");
        world.pass(std::time::Duration::from_secs(120)).await;
        assert!(world.get(&pods, &pod).await.is_some(), "nobody stops it");
        mark(world, Value::Null).await;
        world.until(&nodes, &node, |node| node.is_some_and(|node| ready(node, "True"))).await;
        world.until(&pods, &pod, |pod| pod.is_none()).await;
    });
}

#[test]
fn a_node_whose_lease_is_deleted_gets_another_and_renews_it() {
    let parts = Parts { nodes: 1, ..Parts::default() };
    World::simulate(1, parts, Vec::new(), async |world| {
        let (kind, key) = (Kind::of::<Lease>(), Key::namespaced("kube-node-lease", "node-0"));
        let renewed =
            |lease: Option<&Value>| lease.is_some_and(|lease| lease["spec"]["renewTime"].is_string());
        world.until(&kind, &key, renewed).await;
        let first = world.get(&kind, &key).await.expect("it is there");
        world.client().delete(&kind, &key, &Delete::default()).await.expect("the user's own call succeeds");
        world.until(&kind, &key, renewed).await;
        let second = world.get(&kind, &key).await.expect("it is back");
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        world.until(&kind, &key, |lease| lease.is_some_and(|lease| lease["spec"] != second["spec"])).await;
    });
}
