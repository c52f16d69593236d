//! Pod GC: pods that nobody else will ever remove.
//!
//! Owns: no object; it ends pods that have outlived their use.
//! Watches: Pods, Nodes.
//! Writes: marks pods as failed (patch of `status`), deletes pods at once.
//! Counts: `pod_gc_collector_*`.
//!
//! ```text
//!  view.rs        what is read of nodes
//!  quarantine.rs  nodes that are missed, and since when                      (pure)
//!  plan.rs        which pods are to go, and why                              (pure)
//!  patch.rs       how a pod is marked as failed                              (pure)
//!  reconcile.rs   every 20 s: look, ask for missed nodes, plan, remove
//! ```
//!
//! What always holds:
//! - a pod is not removed for the sake of a missing node before the API server itself has said, 40 s
//!   after the node was first missed, that there is no such node;
//! - a pod that had not ended says that it failed before it is deleted, so that whoever counts it can;
//! - every delete names the uid of the pod that was looked at.

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
    summary: "removes pods that have ended long ago, or whose node is gone",
    watches: &[Access::watch("", "pods"), Access::watch("", "nodes")],
    writes: &[Access::to("", "pods", &["delete"]), Access::to("", "pods/status", &["patch"])],
    default_workers: 1,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::new(
    "terminated-pod-gc-threshold",
    "N",
    "12500",
    "How many pods that have ended may stay before the oldest are removed; 0: all.",
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
