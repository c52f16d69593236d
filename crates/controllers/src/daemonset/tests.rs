//! Table tests of plans.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::Cached;

use super::plan::{Observed, Plan, manage};
use super::rolling::rolling_update;
use super::status::status;
use super::view::{DaemonSet, Node};
use crate::workload::fixtures::{at, cached};
use crate::workload::pod::Pod;

const NOW: i64 = 1_000;

fn set(spec: Value) -> Cached<DaemonSet> {
    let mut whole = json!({
        "selector": {"matchLabels": {"app": "d"}}, "template": {},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    cached(json!({"metadata": {"name": "d", "namespace": "ns", "uid": "d", "generation": 2}, "spec": whole}))
}

fn surging(surge: Value) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": surge}}})
}

/// Nodes from letters; an uppercase one is tainted.
fn nodes(names: &str) -> Vec<Cached<Node>> {
    let node = |name: char| {
        let taints = match name.is_uppercase() {
            true => json!([{"key": "away", "effect": "NoExecute"}]),
            false => json!([]),
        };
        cached(json!({"metadata": {"name": name.to_lowercase().to_string()}, "spec": {"taints": taints}}))
    };
    names.chars().map(node).collect()
}

/// Parses `name node state`, where the state is `new`, `old`, `unready`, `failed`, `ended`, `going` or `waiting`.
fn pod(text: &str) -> Cached<Pod> {
    let [name, node, state] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let phase = match state {
        "failed" => "Failed",
        "ended" => "Succeeded",
        "waiting" => "Pending",
        _ => "Running",
    };
    let ready = !matches!(state, "unready" | "fresh" | "failed" | "ended" | "waiting");
    let ready =
        json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": at(1)});
    let hash = if matches!(state, "old" | "unready") { "h1" } else { "h2" };
    let by_name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [by_name]}]}}});
    cached(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": {"app": "d", "controller-revision-hash": hash},
            "creationTimestamp": at(1), "deletionTimestamp": (state == "going").then(|| at(NOW)),
        },
        "spec": {"nodeName": if state == "waiting" { "" } else { node }, "affinity": affinity},
        "status": {"phase": phase, "conditions": [ready]},
    }))
}

fn words(plan: &Plan) -> String {
    let mut words: Vec<String> = plan.create.iter().map(|node| format!("+{node}")).collect();
    words.extend(plan.delete.iter().map(|pod| format!("-{}", pod.meta().name)));
    words.join(" ")
}

#[track_caller]
fn check(spec: Value, names: &str, members: &[&str], managed: &str, rolled: &str) {
    let (set, nodes) = (set(spec.clone()), nodes(names));
    let pods: Vec<_> = members.iter().map(|text| pod(text)).collect();
    let observed = Observed::new(&set, "h2", &nodes, &pods);
    let actual = (words(&manage(&observed, |_| None, at(NOW))), words(&rolling_update(&observed, at(NOW))));
    assert_eq!((&*actual.0, &*actual.1), (managed, rolled), "{spec} on {names} with {members:?}");
}

#[test]
fn every_node_that_fits_has_one_pod() {
    let none = || json!({});
    check(none(), "ab", &[], "+a +b", "");
    check(none(), "ab", &["p a new", "q b waiting"], "", "");
    check(none(), "aB", &["p a new", "q b new"], "-q", "");
    check(none(), "ab", &["p a new", "q b going"], "", "");
    check(none(), "a", &["p a new", "q a new", "r a new"], "-q -r", "");
    check(none(), "ab", &["p a failed", "q b ended"], "-p -q", "");
    check(none(), "a", &["p a new", "q gone waiting"], "-q", "");
    check(none(), "a", &["p a new", "q gone new"], "", "");
}

#[test]
fn a_failed_pod_is_kept_during_its_backoff() {
    let (set, nodes, pods) = (set(json!({})), nodes("a"), vec![pod("p a failed")]);
    let observed = Observed::new(&set, "h2", &nodes, &pods);
    let plan = manage(&observed, |_| Some(Duration::from_secs(4)), at(NOW));
    assert_eq!((words(&plan), plan.wait), (String::new(), Some(Duration::from_secs(4))));
    let plan = manage(&observed, |_| None, at(NOW));
    assert_eq!((words(&plan), plan.failed.len(), plan.events.len()), ("-p".into(), 1, 1));
}

#[test]
fn old_pods_go_within_the_bound_and_unavailable_ones_at_once() {
    let bound = |unavailable: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable}}});
    check(bound(json!(1)), "abc", &["p a old", "q b old", "r c old"], "", "-p");
    check(bound(json!(2)), "abc", &["p a old", "q b old", "r c old"], "", "-p -q");
    check(bound(json!("50%")), "abc", &["p a old", "q b old", "r c old"], "", "-p -q");
    check(bound(json!(1)), "abc", &["p a new", "q b old", "r c old"], "", "-q");
    check(bound(json!(1)), "abc", &["p a fresh", "q b old", "r c old"], "", "");
    check(bound(json!(1)), "abc", &["p a old", "q b unready", "r c unready"], "", "-q -r");
    check(bound(json!(1)), "abc", &["p a going", "q b old", "r c old"], "", "");
}

#[test]
fn new_pods_come_within_the_surge_before_old_ones_go() {
    check(surging(json!(1)), "ab", &["p a old", "q b old"], "", "+a");
    check(surging(json!("100%")), "ab", &["p a old", "q b old"], "", "+a +b");
    check(surging(json!(1)), "ab", &["p a old", "x a fresh", "q b old"], "", "");
    check(surging(json!(1)), "ab", &["p a old", "x a new", "q b old"], "-p", "+b -p");
    check(surging(json!(1)), "ab", &["p a unready", "q b old"], "", "+a +b");
    check(surging(json!(1)), "aB", &["p a new", "q b old"], "-q", "-q");
    check(surging(json!(1)), "a", &["p a old", "x a fresh", "y a fresh"], "-y", "");
}

#[test]
fn the_status_counts_nodes() {
    let (set, nodes) = (set(json!({})), nodes("abC"));
    let pods: Vec<_> = ["p a new", "q b unready", "r c old"].iter().map(|text| pod(text)).collect();
    let observed = Observed::new(&set, "h2", &nodes, &pods);
    let actual = serde_json::to_value(status(&observed, true, at(NOW))).unwrap();
    let expected = json!({
        "currentNumberScheduled": 2, "numberMisscheduled": 1, "desiredNumberScheduled": 2, "numberReady": 1,
        "observedGeneration": 2, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 1,
    });
    assert_eq!(actual, expected);
}
