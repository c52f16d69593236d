//! Table tests of budgets.

use serde_json::{Value, json};
use setpoint::Cached;

use super::status::{Demand, demand_of, failed, fixed_demand, granted, status};
use super::view::{Budget, Target};
use crate::workload::fixtures::{at, cached};

fn budget(spec: Value, status: Value) -> Cached<Budget> {
    cached(
        json!({"metadata": {"name": "b", "namespace": "ns", "generation": 2}, "spec": spec, "status": status}),
    )
}

fn pod(name: &str, ready: bool, deleted: bool) -> Cached<Target> {
    let ready = if ready { "True" } else { "False" };
    cached(json!({
        "metadata": {"name": name, "namespace": "ns", "deletionTimestamp": deleted.then(|| at(0))},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
}

#[test]
fn the_desired_number_of_healthy_pods_follows_from_the_spec() {
    let check = |spec: Value, expected: i32, healthy: i32| {
        let budget = budget(spec.clone(), json!({}));
        let demand = fixed_demand(&budget, 3).unwrap_or_else(|| demand_of(&budget, 10));
        assert_eq!(demand, Demand { expected, healthy }, "{spec}");
    };
    check(json!({"minAvailable": 2}), 3, 2);
    check(json!({"minAvailable": "50%"}), 10, 5);
    check(json!({"minAvailable": "34%"}), 10, 4);
    check(json!({"maxUnavailable": 1}), 10, 9);
    check(json!({"maxUnavailable": "34%"}), 10, 6);
    check(json!({"maxUnavailable": 20}), 10, 0);
    check(json!({}), 0, 0);
}

#[test]
fn disruptions_are_allowed_for_healthy_pods_beyond_the_desired_number() {
    let check = |pods: &[Cached<Target>], demand: Demand, healthy: i32, allowed: i32| {
        let status = status(&budget(json!({}), json!({})), pods, demand, Default::default(), at(0));
        assert_eq!((status.current_healthy, status.disruptions_allowed), (healthy, allowed));
        let condition = &status.conditions[0];
        let expected = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), expected);
        assert_eq!((status.observed_generation, condition.observed_generation), (2, 2));
    };
    let pods = [pod("a", true, false), pod("b", true, false), pod("c", false, false), pod("d", true, true)];
    check(&pods, Demand { expected: 4, healthy: 1 }, 2, 1);
    check(&pods, Demand { expected: 4, healthy: 3 }, 2, 0);
    check(&[], Demand { expected: 0, healthy: 0 }, 0, 0);
}

#[test]
fn a_granted_eviction_counts_until_the_pod_is_deleted_or_it_expires() {
    let disrupted = json!({"disruptedPods": {"a": at(0), "b": at(100), "gone": at(100)}});
    let budget = budget(json!({}), disrupted);
    let pods = [pod("a", true, false), pod("b", true, false), pod("c", true, false)];
    let found = granted(&budget, &pods, at(130));
    assert_eq!(found.overdue, [0]);
    assert_eq!(found.recheck.map(|left| left.as_secs()), Some(90));
    assert_eq!(found.awaited.keys().collect::<Vec<_>>(), ["b"]);
    let status = status(&budget, &pods, Demand { expected: 3, healthy: 1 }, found.awaited, at(130));
    assert_eq!((status.current_healthy, status.disruptions_allowed), (2, 1));
}

#[test]
fn an_unchanged_status_is_not_written_and_a_failure_allows_no_disruptions() {
    let pods = [pod("a", true, false)];
    let demand = Demand { expected: 1, healthy: 0 };
    let first = status(&budget(json!({}), json!({})), &pods, demand, Default::default(), at(0));
    let settled = budget(json!({}), serde_json::to_value(&first).expect("a status"));
    assert_eq!(status(&settled, &pods, demand, Default::default(), at(50)), settled.status);

    let failure = failed(&settled, "why", at(60));
    assert_eq!((failure.disruptions_allowed, failure.current_healthy), (0, 1));
    assert_eq!(
        (failure.conditions[0].reason.as_str(), failure.conditions[0].message.as_str()),
        ("SyncFailed", "why")
    );
    let failed_budget = budget(json!({}), serde_json::to_value(&failure).expect("a status"));
    assert_eq!(failed(&failed_budget, "why", at(99)), failed_budget.status, "it is reported once");
}
