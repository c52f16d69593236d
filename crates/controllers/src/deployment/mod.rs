//! Deployment: rolls pods from one template to the next, within bounds.
//!
//! Owns: the ReplicaSets that a Deployment controls; `status` and the revision of Deployments.
//! Watches: Deployments, ReplicaSets, Pods (the Recreate strategy waits for their deletion).
//! Writes: creates, updates (size, annotations) and deletes ReplicaSets; adopts and releases them (patch);
//! Deployment status and revision (update of status); Deployments that are rolled back (update).
//!
//! ```text
//!  wake.rs       events of Deployments, ReplicaSets and pods → keys
//!  observe.rs    listers → Observed
//!  plan.rs       what this sync does: claim, roll back, scale or roll out    (pure)
//!  members.rs    the ReplicaSets of a Deployment, actual and desired         (pure)
//!  bounds.rs     maxSurge and maxUnavailable                                 (pure)
//!  revision.rs   revisions, their history, annotations of ReplicaSets        (pure)
//!  rolling.rs    RollingUpdate: scale up new, scale down old                 (pure)
//!  recreate.rs   Recreate: delete old, then create new                       (pure)
//!  scaling.rs    proportional scaling during a rollout                       (pure)
//!  history.rs    old ReplicaSets beyond the history limit                    (pure)
//!  rollback.rs   rollback to an earlier revision                             (pure)
//!  progress.rs   whether a rollout progresses, is complete or is stuck       (pure)
//!  status.rs     status                                                      (pure)
//!  reconcile.rs  observe, plan, apply, then status
//! ```
//!
//! Invariants:
//! - a rollout never raises the total size of all ReplicaSets above `replicas + maxSurge`, and removes an available old
//!   pod only while more than `replicas - maxUnavailable` pods are available;
//! - every write to a ReplicaSet carries the resource version the plan was based on, so a plan from a stale cache fails
//!   and is made again;
//! - the name of the new ReplicaSet is derived from the template, so creating it twice creates one;
//! - status is written only if it changed.

mod bounds;
mod history;
mod members;
mod observe;
mod plan;
mod progress;
mod reconcile;
mod recreate;
mod revision;
mod rollback;
mod rolling;
mod scaling;
mod status;
#[cfg(test)]
mod tests;
mod view;
mod wake;

use std::sync::Arc;

use setpoint::{Context, Kind, Runnable};

use self::observe::Observer;
use self::reconcile::Deployments;
use self::view::Deployment;
use self::wake::Wake;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::replicaset::ReplicaSet;
use crate::wiring;
use crate::workload::dependents::Dependents;
use crate::workload::owners::Owners;
use crate::workload::pod::Pod;

pub(crate) const ENTRY: Entry = Entry {
    name: "deployment-controller",
    aliases: &["deployment"],
    on_by_default: true,
    gates: &[],
    summary: "rolls a Deployment's pods from one template to the next",
    watches: &[
        Access::watch("apps", "deployments"),
        Access::watch("apps", "replicasets"),
        Access::watch("", "pods"),
    ],
    writes: &[
        Access::to("apps", "replicasets", &["create", "update", "patch", "delete"]),
        Access::to("apps", "deployments", &["update"]),
        Access::to("apps", "deployments/status", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-deployment-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let deployments = context.informers.of::<Deployment>();
    let sets = context.informers.of::<ReplicaSet>();
    let pods = context.informers.of::<Pod>();
    let queue = wiring::queue(context, "deployment");

    let wake = Arc::new(Wake {
        queue: queue.clone(),
        deployments: Owners::new(deployments.lister()),
        sets: Owners::new(sets.lister()),
    });
    let (on_deployment, on_set) = (wake.clone(), wake.clone());
    deployments.add_handler(move |event: &setpoint::Event| on_deployment.deployment_changed(event));
    sets.add_handler(move |event: &setpoint::Event| on_set.set_changed(event));
    pods.add_handler(move |event: &setpoint::Event| wake.pod_changed(event));

    let reconciler = Deployments {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock: context.runtime.clock.clone(),
        kind: Kind::of::<Deployment>(),
        sets: Kind::of::<ReplicaSet>(),
        observer: Observer {
            deployments: deployments.lister(),
            sets: Dependents::of(&sets),
            pods: Dependents::of(&pods),
        },
    };
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, [&deployments, &sets, &pods]);
    vec![Box::new(controller)]
}
