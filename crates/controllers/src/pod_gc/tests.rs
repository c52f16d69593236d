//! Tests of which pods are deleted, and of the status they get first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use setpoint::{Cached, Clock};

use super::patch::mark_failed;
use super::plan::{DeletionReason, missing_nodes, plan};
use super::quarantine::Quarantine;
use super::view::Node;
use crate::workload::fixtures::{at, cached};
use crate::workload::pod::Pod;

fn pod(name: &str, node: &str, phase: &str, more: Value) -> Cached<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "generation": 3},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    });
    merge(&mut pod, more);
    cached(pod)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(name, value)| merge(into.entry(name).or_insert(Value::Null), value));
        }
        (into, from) => *into = from,
    }
}

fn deleted() -> Value {
    json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}})
}

fn created(minute: u32) -> Value {
    json!({"metadata": {"creationTimestamp": format!("2025-01-01T00:{minute:02}:00Z")}})
}

#[track_caller]
fn check(pods: &[Cached<Pod>], threshold: usize, expected: &[(&str, DeletionReason)]) {
    let (up, down) =
        (Node { ready: true, out_of_service: false }, Node { ready: false, out_of_service: true });
    let tainted = Node { ready: true, out_of_service: true };
    let nodes = BTreeMap::from([("up", up), ("down", down), ("tainted", tainted)]);
    let gone = BTreeSet::from(["gone".into()]);
    let removals = plan(pods, &nodes, &gone, threshold);
    let removed: Vec<_> = removals.iter().map(|removal| (removal.pod.key().name(), removal.reason)).collect();
    assert_eq!(removed, expected);
}

#[test]
fn running_and_pending_pods_are_kept() {
    let none = || json!({});
    check(
        &[
            pod("runs", "up", "Running", none()),
            pod("waits", "", "Pending", none()),
            pod("ended", "up", "Succeeded", none()),
            pod("ends", "up", "Running", deleted()),
            pod("ends-on-tainted", "tainted", "Running", deleted()),
            pod("runs-on-down", "down", "Running", none()),
            pod("on-missing", "missing", "Running", none()),
        ],
        12_500,
        &[],
    );
}

#[test]
fn a_pod_is_deleted_with_its_node_or_if_it_was_never_scheduled() {
    let none = || json!({});
    check(
        &[
            pod("ends-on-down", "down", "Running", deleted()),
            pod("orphan", "gone", "Running", none()),
            pod("ended-orphan", "gone", "Failed", none()),
            pod("ends-unscheduled", "", "Pending", deleted()),
        ],
        12_500,
        &[
            ("ends-on-down", DeletionReason::OutOfService),
            ("orphan", DeletionReason::Orphaned),
            ("ended-orphan", DeletionReason::Orphaned),
            ("ends-unscheduled", DeletionReason::Unscheduled),
        ],
    );
}

#[test]
fn evicted_pods_are_deleted_first_then_the_oldest_finished() {
    let mut evicted = created(9);
    merge(&mut evicted, json!({"status": {"reason": "Evicted"}}));
    let pods = [
        pod("third", "up", "Succeeded", created(3)),
        pod("second-b", "up", "Failed", created(2)),
        pod("second-a", "up", "Succeeded", created(2)),
        pod("evicted", "up", "Failed", evicted),
        pod("runs", "up", "Running", created(1)),
    ];
    check(&pods, 4, &[]);
    check(&pods, 3, &[("evicted", DeletionReason::Terminated)]);
    check(
        &pods,
        1,
        &[
            ("evicted", DeletionReason::Terminated),
            ("second-a", DeletionReason::Terminated),
            ("second-b", DeletionReason::Terminated),
        ],
    );
    check(&pods, 0, &[]);
}

#[test]
fn a_pod_is_deleted_once_however_many_reasons_there_are() {
    let pods = [pod("ended", "gone", "Failed", json!({})), pod("other", "up", "Failed", created(5))];
    check(&pods, 1, &[("ended", DeletionReason::Terminated)]);
}

#[test]
fn an_unfinished_pod_is_marked_failed() {
    let marked = |pod: &Cached<Pod>, reason| {
        mark_failed(pod, reason, at(7)).map(|patch| serde_json::from_slice::<Value>(&patch).unwrap())
    };
    let running = pod("runs", "gone", "Running", json!({}));
    let unscheduled =
        json!({"metadata": {"uid": "runs"}, "status": {"phase": "Failed", "observedGeneration": 3}});
    assert_eq!(marked(&running, DeletionReason::Unscheduled), Some(unscheduled.clone()));

    let mut orphaned = unscheduled;
    orphaned["status"]["conditions"] = json!([{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "lastTransitionTime": at(7), "observedGeneration": 3,
    }]);
    assert_eq!(marked(&running, DeletionReason::Orphaned), Some(orphaned.clone()));

    let condition = json!({"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(1)});
    let disrupted = pod("runs", "gone", "Running", json!({"status": {"conditions": [condition]}}));
    orphaned["status"]["conditions"][0]["lastTransitionTime"] = json!(at(1));
    assert_eq!(marked(&disrupted, DeletionReason::Orphaned), Some(orphaned), "it is disrupted since then");

    assert_eq!(marked(&pod("ended", "gone", "Succeeded", json!({})), DeletionReason::Orphaned), None);
}

#[tokio::test(start_paused = true)]
async fn a_missing_node_is_looked_up_after_forty_seconds() {
    let start = Clock::simulated(at(0)).instant();
    let mut quarantine = Quarantine::default();
    let after = |seconds| start + Duration::from_secs(seconds);
    let missing = BTreeSet::from(["gone", "late"]);
    assert!(quarantine.pass(&missing, after(0)).is_empty());
    assert!(quarantine.pass(&missing, after(39)).is_empty());
    let missing = BTreeSet::from(["gone"]);
    assert_eq!(quarantine.pass(&missing, after(40)), ["gone".into()], "one has shown up");
    assert!(quarantine.pass(&missing, after(60)).is_empty(), "a node that is missing again starts over");
    assert_eq!(quarantine.pass(&missing, after(100)), ["gone".into()]);
}

#[test]
fn only_nodes_with_bound_pods_can_be_missing() {
    let pods = [
        pod("a", "gone", "Running", json!({})),
        pod("b", "up", "Running", json!({})),
        pod("c", "", "Pending", json!({})),
    ];
    let nodes = BTreeMap::from([("up", Node::default()), ("idle", Node::default())]);
    assert_eq!(missing_nodes(&pods, &nodes), BTreeSet::from(["gone"]));
}
