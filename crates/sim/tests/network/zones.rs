//! Zones that are partly or completely down: the worse it is, the fewer pods are evicted.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::Subresource;
use setpoint_sim::World;

use super::scenarios::{create, list, parts, patch};

/// How often a healthy node reports: more often than the 50 s that it may be silent.
const HEARTBEAT: Duration = Duration::from_secs(40);

async fn report_ready(world: &World, name: &str) {
    let now = world.clock().now().to_string();
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": "2025-01-01T00:00:00Z"});
    patch(world, "Node", name, Subresource::Status, json!({"status": {"conditions": [ready]}})).await;
}

fn has_eviction_taint(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| {
        all.iter().any(|it| it["key"] == "node.kubernetes.io/unreachable" && it["effect"] == "NoExecute")
    })
}

/// Simulates nodes in zones, of which the last `silent` stop reporting. Returns how many nodes evict their pods after
/// each heartbeat.
fn tainted_after_each_heartbeat(zones: &[(&str, usize, usize)], watched: Duration) -> Vec<usize> {
    World::simulate(1, parts(&["nodelifecycle"]), Vec::new(), async |world| {
        let node = |zone: &str, nth: usize| format!("{zone}-{nth:03}");
        for (zone, nodes, _) in zones {
            for nth in 0..*nodes {
                let labels = json!({"topology.kubernetes.io/zone": zone});
                create(world, "Node", &node(zone, nth), json!({"metadata": {"labels": labels}})).await;
                report_ready(world, &node(zone, nth)).await;
            }
        }
        world.pass(Duration::from_secs(10)).await;
        let mut counts = Vec::new();
        let rounds = watched.as_secs() / HEARTBEAT.as_secs();
        for _ in 0..rounds {
            for (zone, nodes, silent) in zones {
                for nth in 0..nodes - silent {
                    report_ready(world, &node(zone, nth)).await;
                }
            }
            world.pass(HEARTBEAT).await;
            counts.push(list(world, "Node").await.iter().filter(|node| has_eviction_taint(node)).count());
        }
        counts
    })
}

const HOUR: Duration = Duration::from_secs(3600);

/// One per hundred seconds, and the first one immediately.
#[test]
fn in_a_large_zone_that_is_mostly_down_one_node_in_a_hundred_seconds_is_tainted() {
    let counts = tainted_after_each_heartbeat(&[("a", 60, 36)], HOUR / 2);
    let last = *counts.last().expect("it was watched");
    assert!((10..=18).contains(&last), "{last} of 36 in 30 minutes: {counts:?}");
    let steps = counts.windows(4).map(|window| window[3] - window[0]);
    assert!(steps.clone().all(|step| step <= 2), "at most two in two minutes: {counts:?}");
}

#[test]
fn in_a_small_zone_that_is_mostly_down_no_node_is_tainted() {
    let counts = tainted_after_each_heartbeat(&[("a", 50, 30)], HOUR / 2);
    assert_eq!(counts.last(), Some(&0), "{counts:?}");
}

#[test]
fn no_node_is_tainted_when_all_zones_are_down() {
    let counts = tainted_after_each_heartbeat(&[("a", 6, 6), ("b", 6, 6)], HOUR / 2);
    assert_eq!(counts.last(), Some(&0), "{counts:?}");
}

/// One zone is completely down next to a healthy one. Its nodes are evicted at the usual rate of one per ten seconds.
#[test]
fn a_zone_that_is_down_beside_a_healthy_one_is_tainted_at_the_usual_rate() {
    let counts = tainted_after_each_heartbeat(&[("a", 20, 20), ("b", 4, 0)], HOUR / 6);
    assert_eq!(counts.last(), Some(&20), "{counts:?}");
    assert!(counts.windows(2).all(|pair| pair[1] - pair[0] <= 5), "at most one in ten seconds: {counts:?}");
}
