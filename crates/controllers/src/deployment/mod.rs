//! Deployment: from one pod template to the next, within bounds.
//!
//! Owns: the ReplicaSets that a Deployment controls; `status` and the revision of Deployments.
//! Watches: Deployments, ReplicaSets, Pods (whose end a Recreate waits for).
//! Writes: creates, updates (size, annotations) and deletes ReplicaSets; adopts and releases them
//! (patch); Deployment status and revision (update of status); a Deployment that is rolled back
//! (update).
//!
//! ```text
//!  wake.rs       a change of a Deployment, a set or a pod → the Deployments to look at
//!  observe.rs    listers → Observed
//!  plan.rs       what this sync does: claim, roll back, scale, or roll out    (pure)
//!  members.rs    the sets of a Deployment as they are, and as they shall be   (pure)
//!  bounds.rs     how many pods more and fewer than wanted                     (pure)
//!  revision.rs   revisions, their history, what a set is annotated with       (pure)
//!  rolling.rs    RollingUpdate: up with the new, down with the old            (pure)
//!  recreate.rs   Recreate: down with the old, then up with the new            (pure)
//!  scaling.rs    a new size in the middle of a rollout                        (pure)
//!  history.rs    the old sets that nobody needs any more                      (pure)
//!  rollback.rs   back to an earlier revision                                  (pure)
//!  progress.rs   whether a rollout moves, has ended or is stuck               (pure)
//!  status.rs     what the Deployment's status says                            (pure)
//!  reconcile.rs  observe, plan, apply, then status
//! ```
//!
//! What always holds:
//! - the sizes of all sets together never exceed `replicas + maxSurge` by a rollout's doing, and an
//!   available old pod is given up only while more than `replicas - maxUnavailable` are available;
//! - every write of a set carries the resource version that was planned from, so a plan made from a
//!   stale cache fails and is made again;
//! - the new set's name follows from the template, so that creating it twice creates one;
//! - status is written only when it changed.

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
