//! Taint eviction: deletes pods from nodes whose taints they do not tolerate.
//!
//! Owns: nothing; it deletes pods.
//! Watches: Nodes, Pods.
//! Writes: Pod status (patch), deletes pods.
//! Metrics: `taint_eviction_controller_*`.
//!
//! ```text
//!  view.rs         typed views of taints and tolerations
//!  toleration.rs   whether, and for how long, a pod stays      (pure)
//!  schedule.rs     which pods to delete, and when              (pure)
//!  reconcile.rs    checks a pod; deletes it when its time has come
//! ```
//!
//! Invariants:
//! - a pod that does not tolerate all `NoExecute` taints of its node is deleted at once; one that tolerates them for a
//!   limited time is deleted after that time, counted from when the taint was first observed;
//! - a pod gets a disruption condition before it is deleted;
//! - every delete carries the UID of the pod that was examined.

mod reconcile;
mod schedule;
#[cfg(test)]
mod tests;
mod toleration;
mod view;

use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::{Context, Event, Key, Lister, Object, Runnable};

use self::reconcile::Evictor;
use self::schedule::Schedule;
use self::view::{NodeTaints, PodTolerations};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::on_node::{OnNode, node_of};

pub(crate) const ENTRY: Entry = Entry {
    name: "taint-eviction-controller",
    aliases: &[],
    on_by_default: true,
    gates: &["SeparateTaintEvictionController"],
    summary: "deletes pods from nodes whose taints they do not tolerate",
    watches: &[Access::watch("", "nodes"), Access::watch("", "pods")],
    writes: &[Access::to("", "pods", &["delete", "get"]), Access::to("", "pods/status", &["patch"]), EVENTS],
    default_workers: 8,
    build,
};

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let nodes = context.informers.of::<NodeTaints>();
    let pods = context.informers.of::<PodTolerations>();
    let queue = wiring::queue(context, "noexec_taint_pod");

    let schedule = Arc::new(Mutex::new(Schedule::default()));
    let (changed, taints_by_node, known) = (queue.clone(), nodes.lister::<NodeTaints>(), schedule.clone());
    pods.add_handler(move |event: &Event| {
        if may_need_eviction(event, &taints_by_node) || known.lock().has(event.object().key()) {
            changed.add(event.object().key().clone());
        }
    });
    let (changed, on_node) = (queue.clone(), OnNode::<PodTolerations>::of(&pods));
    nodes.add_handler(move |event: &Event| {
        let taints =
            |node: &Object| node.view::<NodeTaints>().map(|node| node.taints.clone()).unwrap_or_default();
        let changes = match event {
            Event::Added { object, .. } => !taints(object).is_empty(),
            Event::Updated { old, new } => taints(old) != taints(new),
            Event::Deleted { .. } => false,
        };
        if changes {
            let pods = on_node.pods(event.object().key().name()).unwrap_or_default();
            pods.into_iter().for_each(|pod| changed.add(pod.key().clone()));
        }
    });

    let evictor = Evictor {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(ENTRY.name),
        metrics: context.metrics.clone(),
        pods: pods.lister(),
        nodes: nodes.lister(),
        schedule,
    };
    let controller = wiring::controller(&ENTRY, options, queue, evictor, [&nodes, &pods]);
    vec![Box::new(controller)]
}

/// Whether a pod event can lead to its eviction. Not on a node without taints, so that tolerations need not be decoded;
/// when a node is tainted, all its pods are checked.
fn may_need_eviction(event: &Event, taints_by_node: &Lister<NodeTaints>) -> bool {
    let tainted = |node: Key| {
        taints_by_node
            .get(&node)
            .is_ok_and(|node_taints| node_taints.is_some_and(|node_taints| !node_taints.taints.is_empty()))
    };
    // Only its node and its tolerations matter.
    let same =
        |old: &Object, new: &Object| old.view::<PodTolerations>().ok() == new.view::<PodTolerations>().ok();
    node_of(event.object()).map(Key::cluster).is_some_and(tainted)
        && !matches!(event, Event::Updated { old, new } if same(old, new))
}
