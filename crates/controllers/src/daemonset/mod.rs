//! DaemonSet: runs one pod on every eligible node.
//!
//! Owns: the pods and the revisions that a DaemonSet controls; `status` of DaemonSets.
//! Watches: DaemonSets, Pods, Nodes, ControllerRevisions.
//! Writes: creates and deletes pods; adopts, releases and relabels them (patch); creates, updates, adopts,
//! releases and deletes revisions; DaemonSet status (update).
//!
//! ```text
//!  placement.rs  which nodes run a daemon pod                         (pure)
//!  plan.rs       which nodes need a pod, and which pods to delete     (pure)
//!  rolling.rs    rolling updates within their bounds                  (pure)
//!  bodies.rs     pod bodies                                           (pure)
//!  backoff.rs    how long failed pods are kept
//!  revisions.rs  the current revision of the template, and old ones
//!  status.rs     status, and when to check again                      (pure)
//!  reconcile.rs  observe, plan, apply, then history and status
//! ```
//!
//! Invariants:
//! - a pod is created for one node, which its affinity names; the scheduler only confirms it;
//! - a node has at most one pod, or two while an update surges;
//! - nothing is created or deleted while earlier creates and deletes are missing from the cache;
//! - an update proceeds only if there is nothing to repair.

mod backoff;
mod bodies;
mod placement;
mod plan;
mod reconcile;
mod revisions;
mod rolling;
mod status;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Cached, Context, Event, Key, Kind, Lister, Object, Queue, Runnable};

use self::backoff::Failures;
use self::placement::{Placement, Verdict};
use self::reconcile::DaemonSets;
use self::view::{DaemonSet, Node, PlacementSpec};
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::dependents::Dependents;
use crate::workload::history::{Revision, RevisionStore};
use crate::workload::on_node::OnNode;
use crate::workload::pod::Pod;
use crate::workload::pod_control::PodControl;
use crate::workload::wake::Wake;

pub(crate) const ENTRY: Entry = Entry {
    name: "daemonset-controller",
    aliases: &["daemonset"],
    on_by_default: true,
    gates: &[],
    summary: "runs one of a DaemonSet's pods on every eligible node",
    watches: &[
        Access::watch("apps", "daemonsets"),
        Access::watch("apps", "controllerrevisions"),
        Access::watch("", "pods"),
        Access::watch("", "nodes"),
    ],
    writes: &[
        Access::to("", "pods", &["create", "delete", "patch"]),
        Access::to("apps", "controllerrevisions", &["create", "delete", "patch", "update"]),
        Access::to("apps", "daemonsets/status", &["update"]),
        EVENTS,
    ],
    default_workers: 2,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-daemonset-syncs", &ENTRY, "2")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let sets = context.informers.of::<DaemonSet>();
    let pods = context.informers.of::<Pod>();
    let nodes = context.informers.of::<Node>();
    let revisions = context.informers.of::<Revision>();
    let clock = &context.runtime.clock;
    let queue = wiring::queue(context, "daemonset");
    let wake = Wake::<DaemonSet>::follow(context, &queue, &sets, &pods);
    let node_events = NodeEvents { queue: queue.clone(), sets: sets.lister(), pods: OnNode::of(&pods) };
    nodes.add_handler(move |event: &Event| node_events.node_changed(event));
    let revision_store = RevisionStore::new(context.client.clone(), &revisions);
    revision_store.follow::<DaemonSet>(&revisions, &queue, &sets);

    let reconciler = DaemonSets {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock: clock.clone(),
        kind: Kind::of::<DaemonSet>(),
        sets: sets.lister(),
        nodes: nodes.lister(),
        pods: Dependents::of(&pods),
        revision_store,
        expectations: wake.expectations.clone(),
        throttle: wake.throttle.clone(),
        failures: Failures::new(clock.clone()),
        pod_control: PodControl::new(context, Kind::of::<DaemonSet>(), ENTRY.name),
    };
    let controller =
        wiring::controller(&ENTRY, options, queue, reconciler, [&sets, &pods, &nodes, &revisions]);
    vec![Box::new(controller)]
}

/// Handles node events.
struct NodeEvents {
    queue: Queue<Key>,
    sets: Lister<DaemonSet>,
    pods: OnNode<Pod>,
}

impl NodeEvents {
    fn node_changed(&self, event: &Event) {
        match event {
            Event::Updated { old, new } if !affects_placement(old, new) => {}
            Event::Added { object, .. } | Event::Updated { new: object, .. } => self.enqueue_affected(object),
            Event::Deleted { .. } => {
                for set in self.sets.list(None).unwrap_or_default() {
                    self.queue.add(set.key().clone());
                }
            }
        }
    }

    /// Enqueues the DaemonSets whose pods on the node need a change.
    fn enqueue_affected(&self, node: &Object) {
        let Ok(node) = Cached::<Node>::new(node.clone()) else { return };
        let pods = self.pods.pods(&node.meta().name).unwrap_or_default();
        for set in self.sets.list(None).unwrap_or_default() {
            let verdict = Placement::of(PlacementSpec::of(&set.spec.template)).verdict(&node);
            let there = pods.iter().any(|pod| pod.meta().is_controlled_by(&set.meta().uid));
            let misplaced = there && set.status.number_misscheduled > 0;
            if (verdict == Verdict::Run) != there || misplaced {
                self.queue.add(set.key().clone());
            }
        }
    }
}

/// Whether anything changed that affects which daemon pods a node gets.
fn affects_placement(old: &Object, new: &Object) -> bool {
    old.meta().labels != new.meta().labels || old.view::<Node>().ok() != new.view::<Node>().ok()
}
