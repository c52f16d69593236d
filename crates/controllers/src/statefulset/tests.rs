//! Table tests of plans.

use serde_json::{Value, json};
use setpoint::Cached;

use super::claims::Owners;
use super::plan::{Action, Revisions, plan};
use super::status::status;
use super::view::{Claim, StatefulSet};
use crate::workload::fixtures::{at, cached};
use crate::workload::pod::Pod;

const NOW: i64 = 1_000;

fn set(spec: Value) -> Cached<StatefulSet> {
    let mut whole = json!({
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "template": {},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    cached(
        json!({"metadata": {"name": "web", "namespace": "ns", "uid": "set", "generation": 1}, "spec": whole}),
    )
}

/// Parses `ordinal state[revision]`, where the state is `up`, `pending`, `failed`, `going`, or `new` (ready for a
/// second).
fn pod(text: &str) -> Cached<Pod> {
    let (ordinal, state) = text.split_once(' ').unwrap();
    let (state, revision) = state.split_once('@').unwrap_or((state, "new-1"));
    let (phase, ready) = match state {
        "up" | "going" => ("Running", Some(100)),
        "new" => ("Running", Some(1)),
        "pending" => ("Pending", None),
        "failed" => ("Failed", None),
        _ => ("Running", None),
    };
    let ready =
        ready.map(|ago| json!({"type": "Ready", "status": "True", "lastTransitionTime": at(NOW - ago)}));
    cached(json!({
        "metadata": {
            "name": format!("web-{ordinal}"), "namespace": "ns", "uid": format!("p{ordinal}"),
            "deletionTimestamp": (state == "going").then(|| at(NOW)),
            "labels": {"app": "web", "controller-revision-hash": revision},
        },
        "status": {"phase": phase, "conditions": ready.into_iter().collect::<Vec<_>>()},
    }))
}

fn pods(texts: &[&str]) -> Vec<Cached<Pod>> {
    texts.iter().map(|text| pod(text)).collect()
}

fn revisions() -> Revisions {
    Revisions { current: "old-1".into(), update: "new-1".into() }
}

/// Formats a plan. Actions that change nothing are left out.
fn words(set: &Cached<StatefulSet>, pods: &[Cached<Pod>], several_at_once: bool) -> String {
    let word = |action: &Action| match action {
        Action::Create { ordinal, updated: true } => Some(format!("create {ordinal}")),
        Action::Create { ordinal, updated: false } => Some(format!("create old {ordinal}")),
        Action::Provide { ordinal, .. } => Some(format!("provide {ordinal}")),
        Action::Delete { pod } => Some(format!("delete {}", pod.meta().name)),
        Action::Renew { pod } => Some(format!("renew {}", pod.meta().name)),
        Action::UpdatePod { .. } | Action::UpdateClaimOwners { .. } => None,
    };
    let stage = |stage: &Vec<Action>| stage.iter().filter_map(word).collect::<Vec<_>>().join(", ");
    let stages: Vec<_> = plan(set, pods, &revisions(), several_at_once, at(NOW)).iter().map(stage).collect();
    stages.into_iter().filter(|stage| !stage.is_empty()).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn check(spec: Value, members: &[&str], expected: &str) {
    assert_eq!(words(&set(spec.clone()), &pods(members), false), expected, "{spec} with {members:?}");
}

#[test]
fn an_ordered_set_goes_one_step_at_a_time() {
    let none = || json!({});
    check(none(), &[], "create 0");
    check(none(), &["0 pending"], "provide 0");
    check(none(), &["0 unready"], "");
    check(none(), &["0 up"], "create 1");
    check(none(), &["0 up", "2 up"], "create 1");
    check(none(), &["0 up", "1 up", "2 up"], "");
    check(none(), &["0 failed", "1 up"], "delete web-0");
    check(none(), &["0 going", "1 up"], "");
    check(json!({"minReadySeconds": 10}), &["0 new"], "");
    check(json!({"ordinals": {"start": 5}}), &[], "create 5");
    check(json!({"ordinals": {"start": 2}}), &["0 up", "2 up", "3 up", "4 up"], "delete web-0");
}

#[test]
fn a_parallel_set_does_all_at_once() {
    let parallel = |more: Value| {
        let mut spec = json!({"podManagementPolicy": "Parallel"});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    check(parallel(json!({})), &[], "create 0, create 1, create 2");
    check(parallel(json!({})), &["0 unready", "2 failed"], "create 1, delete web-2");
    check(
        parallel(json!({"replicas": 1})),
        &["0 unready", "1 up", "2 going", "3 unready"],
        "delete web-3, delete web-1",
    );
}

#[test]
fn the_highest_go_first_and_an_ordered_set_waits_for_each() {
    let one = || json!({"replicas": 1});
    check(one(), &["0 up", "1 up", "2 up"], "delete web-2");
    check(one(), &["0 up", "1 up", "2 going"], "");
    check(one(), &["0 unready", "1 up", "2 up"], "");
    check(one(), &["0 up", "1 unready", "2 up"], "delete web-2");
    check(one(), &["0 up", "1 up", "2 unready"], "delete web-2");
    check(one(), &["0 up", "1 unready", "2 unready"], "");
    check(json!({"replicas": 0}), &["0 up"], "delete web-0");
}

#[test]
fn an_update_takes_down_as_many_at_once_as_it_may() {
    let check = |amount: Value, partition: i32, members: &[&str], expected: &str| {
        let rolling = json!({"partition": partition, "maxUnavailable": amount});
        let spec = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
        assert_eq!(words(&set(spec), &pods(members), true), expected, "{amount} with {members:?}");
    };
    let old = ["0 up@old-1", "1 up@old-1", "2 up@old-1"];
    check(json!(2), 0, &old, "renew web-2, renew web-1");
    check(json!("34%"), 0, &old, "renew web-2");
    check(json!("1%"), 0, &old, "renew web-2");
    check(json!(3), 2, &old, "renew web-2");
    check(Value::Null, 0, &old, "renew web-2");
}

#[test]
fn a_rolling_update_goes_from_the_highest_down_to_the_partition() {
    let none = || json!({});
    check(none(), &["0 up@old-1", "1 up@old-1", "2 up@old-1"], "renew web-2");
    check(none(), &["0 up@old-1", "1 up@old-1", "2 up"], "renew web-1");
    check(none(), &["0 up@old-1", "1 up", "2 unready"], "");
    let partition = |partition: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    check(partition(2), &["0 up@old-1", "1 up@old-1", "2 up"], "");
    check(partition(5), &["0 up@old-1", "1 up@old-1", "2 up@old-1"], "");
    check(partition(2), &["0 up@old-1"], "create old 1");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), &["0 up@old-1", "1 up@old-1", "2 up@old-1"], "");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), &["0 up@old-1"], "create 1");
    let parallel = json!({"podManagementPolicy": "Parallel"});
    check(parallel, &["0 up@old-1", "1 up@old-1", "2 unready@old-1"], "renew web-2");
}

#[test]
fn the_status_counts_by_revision_and_completes_an_update() {
    let check = |members: &[&str], renewed: i32, expected: (i32, i32, i32, i32, &str)| {
        let status = status(&set(json!({})), &pods(members), &revisions(), 0, renewed, at(NOW));
        let summary =
            (status.replicas, status.ready_replicas, status.current_replicas, status.updated_replicas);
        assert_eq!(
            (summary.0, summary.1, summary.2, summary.3, &*status.current_revision),
            expected,
            "{members:?}"
        );
    };
    check(&["0 up@old-1", "1 up@old-1", "2 up@old-1"], 1, (3, 3, 2, 0, "old-1"));
    check(&["0 up@old-1", "1 up@old-1", "2 going"], 0, (3, 3, 2, 0, "old-1"));
    check(&["0 up", "1 up", "2 unready"], 0, (3, 2, 0, 3, "old-1"));
    check(&["0 up", "1 up", "2 up"], 0, (3, 3, 3, 3, "new-1"));
}

#[test]
fn a_claim_is_deleted_with_the_owner_that_the_policy_names() {
    let owner = |kind: &str, name: &str, uid: &str| {
        let api_version = if kind == "Pod" { "v1" } else { "apps/v1" };
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
    };
    let check = |deleted: &str, scaled: &str, wanted: bool, owners: Vec<Value>, expected: Option<&[&str]>| {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let (set, pod) = (set(json!({"persistentVolumeClaimRetentionPolicy": policy})), pod("0 up"));
        let claim: Cached<Claim> =
            cached(json!({"metadata": {"name": "data-web-0", "ownerReferences": owners}}));
        let corrected = Owners { set: &set, pod: &pod, wanted }.corrected(&claim);
        let kinds =
            corrected.map(|owners| owners.iter().map(|owner| owner.kind.to_string()).collect::<Vec<_>>());
        let expected = expected.map(|kinds| kinds.iter().map(|kind| (*kind).to_owned()).collect());
        assert_eq!(kinds, expected, "{policy} wanted {wanted} {owners:?}");
    };
    let (of_set, of_pod) = (|| owner("StatefulSet", "web", "set"), || owner("Pod", "web-0", "p0"));
    check("Retain", "Retain", true, vec![], None);
    check("Retain", "Retain", true, vec![of_set()], Some(&[]));
    check("Delete", "Retain", true, vec![], Some(&["StatefulSet"]));
    check("Delete", "Retain", false, vec![of_set()], None);
    check("Retain", "Delete", true, vec![], None);
    check("Retain", "Delete", false, vec![], Some(&["Pod"]));
    check("Delete", "Delete", true, vec![of_pod()], Some(&["StatefulSet"]));
    check("Delete", "Delete", false, vec![of_set()], Some(&["Pod"]));
    check("Delete", "Delete", true, vec![owner("StatefulSet", "web", "former")], None);
    check("Delete", "Retain", true, vec![owner("Operator", "x", "x")], None);
    check("Delete", "Retain", true, vec![owner("Operator", "x", "x"), of_set()], Some(&["Operator"]));
}
