//! Table tests of plans and statuses, and property tests of rollout bounds.

mod history;
mod properties;
mod reporting;
mod sizes;

use serde_json::{Value, json};
use setpoint::Cached;

use super::bounds::Bounds;
use super::members::Members;
use super::observe::Observed;
use super::plan::{Plan, Sync, plan};
use super::progress::{NewSet, NextCheck, next_check};
use super::revision::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION, REVISION_HISTORY, ROLLBACK_TO};
use super::rollback::Rollback;
use super::status;
use super::view::{Deployment, DeploymentStatus};
use crate::replicaset::ReplicaSet;
use crate::workload::condition::{self, Condition};
use crate::workload::fixtures::{at, cached};

const NOW: i64 = 1_000;

/// A Deployment with template `v9`, 10 replicas, maxSurge 3 and maxUnavailable 2.
fn deployment_json() -> Value {
    json!({
        "metadata": {"name": "d", "namespace": "ns", "uid": "d-uid", "generation": 7, "annotations": {REVISION: "9"}},
        "spec": {
            "replicas": 10,
            "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"version": 9}},
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
        },
        "status": {"observedGeneration": 7},
    })
}

fn deployment(change: impl FnOnce(&mut Value)) -> Cached<Deployment> {
    let mut json = deployment_json();
    change(&mut json);
    cached(json)
}

fn sized(replicas: i32, surge: Value, unavailable: Value) -> Cached<Deployment> {
    deployment(|d| {
        d["spec"]["replicas"] = json!(replicas);
        d["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    })
}

/// A ReplicaSet with template and revision `version`. A lower version is older.
#[derive(Clone, Debug)]
struct Model {
    version: i64,
    replicas: i32,
    /// The replicas in its last status.
    reported: i32,
    available: i32,
    /// Its desired-replicas and max-replicas annotations.
    sized_for: (i32, i32),
    observed: bool,
}

impl Model {
    /// All pods exist and are available; scaled for 10 replicas and a surge of 3.
    fn of(version: i64, replicas: i32) -> Self {
        Self {
            version,
            replicas,
            reported: replicas,
            available: replicas,
            sized_for: (10, 13),
            observed: true,
        }
    }

    fn json(&self) -> Value {
        let (desired, max) = self.sized_for;
        json!({
            "metadata": {
                "name": format!("v{}", self.version), "namespace": "ns", "uid": format!("uid-{}", self.version),
                "generation": 2, "creationTimestamp": at(self.version), "labels": {"app": "a"},
                "annotations": {
                    REVISION: self.version.to_string(), DESIRED_REPLICAS: desired.to_string(), MAX_REPLICAS: max.to_string(),
                },
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d-uid", "controller": true},
                ],
            },
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": {"version": self.version},
                },
            },
            "status": {
                "replicas": self.reported, "readyReplicas": self.available, "availableReplicas": self.available,
                "observedGeneration": if self.observed { 2 } else { 1 },
            },
        })
    }

    fn cached(&self) -> Cached<ReplicaSet> {
        cached(self.json())
    }
}

fn observed(sets: &[Model]) -> Observed {
    Observed { sets: sets.iter().map(Model::cached).collect(), busy: Vec::new() }
}

fn sync(deployment: &Cached<Deployment>, sets: &[Model]) -> Sync {
    match plan(deployment, &observed(sets)) {
        Plan::Sync(sync) => sync,
        _ => panic!("the sets are the Deployment's own"),
    }
}

/// Formats the changes of a sync.
fn words(sync: &Sync) -> Vec<String> {
    let mut words = Vec::new();
    for member in sync.members.new.iter().chain(&sync.members.old) {
        match &member.existing {
            None => words.push(format!("create with {}", member.replicas)),
            Some(set) if set.spec.replicas != member.replicas => {
                words.push(format!("{} {} to {}", member.name, set.spec.replicas, member.replicas));
            }
            Some(_) => {}
        }
    }
    words.extend(sync.delete.iter().map(|set| format!("delete {}", set.meta().name)));
    words
}

#[track_caller]
fn check(deployment: &Cached<Deployment>, sets: &[Model], expected: &[&str]) {
    assert_eq!(words(&sync(deployment, sets)), expected, "{sets:?}");
}

fn unavailable(model: Model, count: i32) -> Model {
    Model { available: model.available - count, ..model }
}
