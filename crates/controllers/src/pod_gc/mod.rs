//! Pod garbage collector: deletes pods that nothing else would delete.
//!
//! Owns: nothing; it deletes pods.
//! Watches: Pods, Nodes.
//! Writes: marks pods as failed (patch of `status`), force-deletes pods.
//! Metrics: `pod_gc_collector_*`.
//!
//! ```text
//!  view.rs        typed views of nodes
//!  quarantine.rs  missing nodes, and since when                   (pure)
//!  plan.rs        which pods to delete, and why                   (pure)
//!  patch.rs       marks a pod as failed                           (pure)
//!  reconcile.rs   every 20 s: observe, verify missing nodes, plan, delete
//! ```
//!
//! Invariants:
//! - a pod is not deleted because of a missing node before the API server has confirmed, 40 s after the node was first
//!   missed, that it does not exist;
//! - a pod that has not finished is marked as failed before it is deleted, so that its owner can count it;
//! - every delete carries the UID of the pod that was examined.

mod patch;
mod plan;
mod quarantine;
mod reconcile;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Context, Key, Runnable};

use self::reconcile::Sweeper;
use self::view::Node;
use crate::flags::{Flag, number};
use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::pod::Pod;

pub(crate) const ENTRY: Entry = Entry {
    name: "pod-garbage-collector-controller",
    aliases: &["podgc"],
    on_by_default: true,
    gates: &[],
    summary: "deletes pods that finished long ago, and pods of deleted nodes",
    watches: &[Access::watch("", "pods"), Access::watch("", "nodes")],
    writes: &[Access::to("", "pods", &["delete"]), Access::to("", "pods/status", &["patch"])],
    default_workers: 1,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::new(
    "terminated-pod-gc-threshold",
    "N",
    "12500",
    "Number of finished pods to keep before the oldest are deleted; 0 keeps all.",
    |options, text| number(text).map(|count| options.terminated_pod_threshold = count),
)];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<Pod>();
    let nodes = context.informers.of::<Node>();
    let queue = wiring::queue(context, "podgc");
    queue.add(Key::cluster("pods"));
    let sweeper = Sweeper::new(context, pods.lister(), nodes.lister(), options.terminated_pod_threshold);
    let controller = wiring::part(ENTRY.name, queue, sweeper, [&pods, &nodes]);
    vec![Box::new(controller)]
}
