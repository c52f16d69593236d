//! Simulated nodes keep their heartbeat.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;
use setpoint::client::Delete;
use setpoint::{Key, Kind};
use setpoint_cluster::Parts;
use setpoint_sim::World;

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
