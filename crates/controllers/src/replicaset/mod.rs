//! ReplicaSet: keeps the desired number of pods of a template.
//!
//! Owns: the pods that a ReplicaSet controls; `status` of ReplicaSets.
//! Watches: ReplicaSets, Pods.
//! Writes: creates and deletes pods; adopts and releases them (patch); ReplicaSet status (update).
//! Metrics: `replicaset_controller_sorting_deletion_age_ratio`.
//!
//! ```text
//!  observe.rs    listers → Observed
//!  plan.rs       which pods to adopt, how many to create, which to delete   (pure)
//!  rank.rs       which pods are deleted first                               (pure)
//!  status.rs     status, and when to check again                            (pure)
//!  reconcile.rs  observe, plan, apply, then status
//! ```
//!
//! Invariants:
//! - nothing is created or deleted while earlier creates and deletes are missing from the cache, for up to five
//!   minutes; status is written anyway;
//! - at most [`plan::BURST`] pods are created or deleted at a time;
//! - a pod that another controller owns is never touched;
//! - a ReplicaSet that is being deleted creates, deletes, adopts and releases nothing;
//! - status is computed after the writes, because it reports their result;
//! - all of this applies to every kind that keeps a number of pods of a template ([`Replicated`]);
//! - the first change of a number in the status is written at once; further changes are batched, at growing intervals.

mod observe;
mod plan;
mod rank;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Context, Kind, Runnable};

use self::observe::Observer;
use self::reconcile::ReplicaSets;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::dependents::Dependents;
use crate::workload::pod::Pod;
use crate::workload::pod_control::PodControl;
use crate::workload::wake::Wake;

pub(crate) use self::view::{REPLICA_FAILURE, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus, Replicated};

pub(crate) const ENTRY: Entry = Entry {
    name: "replicaset-controller",
    aliases: &["replicaset"],
    on_by_default: true,
    gates: &[],
    summary: "keeps a ReplicaSet's desired number of pods",
    watches: &[Access::watch("apps", "replicasets"), Access::watch("", "pods")],
    writes: &[
        Access::to("", "pods", &["create", "delete", "patch"]),
        Access::to("apps", "replicasets/status", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-replicaset-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let names = Names { queue: "replicaset", component: ENTRY.name, counts_terminating: true };
    keeper::<ReplicaSet>(context, options, &ENTRY, names)
}

/// Names and differences between the kinds of replica controllers.
pub(crate) struct Names {
    /// The queue name in metrics.
    pub(crate) queue: &'static str,
    /// The event source.
    pub(crate) component: &'static str,
    /// Whether its status may count terminating pods.
    pub(crate) counts_terminating: bool,
}

/// Builds a controller for any kind that keeps a number of pods of a template.
pub(crate) fn keeper<R: Replicated>(
    context: &Context,
    options: &Options,
    entry: &Entry,
    names: Names,
) -> Vec<Box<dyn Runnable>> {
    let sets = context.informers.of::<R>();
    let pods = context.informers.of::<Pod>();
    let queue = wiring::queue(context, names.queue);
    let wake = Wake::<R>::follow(context, &queue, &sets, &pods);
    let reconciler = ReplicaSets::<R> {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        kind: Kind::of::<R>(),
        observer: Observer {
            listed: sets.lister(),
            sets: Dependents::of(&sets),
            pods: Dependents::of(&pods),
            expectations: wake.expectations.clone(),
            counts_terminating: names.counts_terminating
                && options.gates.on("DeploymentReplicaSetTerminatingReplicas"),
            by_cost: options.gates.on("PodDeletionCost"),
        },
        expectations: wake.expectations.clone(),
        throttle: wake.throttle.clone(),
        metrics: context.metrics.clone(),
        pod_control: PodControl::new(context, Kind::of::<R>(), names.component),
    };
    vec![Box::new(wiring::controller(entry, options, queue, reconciler, [&sets, &pods]))]
}
