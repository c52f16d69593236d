//! Node lifecycle: monitors node health, and taints unhealthy nodes.
//!
//! Owns: the taints for node conditions and for cordoned nodes; the conditions of nodes that stopped reporting; the
//! readiness of pods on unready nodes; the deprecated OS and architecture labels.
//! Watches: Nodes, Leases, Pods.
//! Writes: Nodes (update), Node status (update), Pod status (patch).
//!
//! ```text
//!  config.rs     settings
//!  view.rs       nodes and leases as they are read
//!  taints.rs     the taints for a node's conditions                            (pure)
//!  labels.rs     deprecated labels                                             (pure)
//!  health.rs     whether a node has reported recently                          (pure)
//!  zones.rs      the health of each zone, and its eviction rate                (pure)
//!  figures.rs    metrics: `node_collector_*`
//!  roll.rs       the known state of all nodes, shared by the parts below
//!  monitor.rs    checks all nodes every few seconds
//!  tainter.rs    per node: NoSchedule taints and labels
//!  evictor.rs    per zone: NoExecute taints, rate-limited
//!  pods.rs       marks pods on unready nodes as not ready
//! ```
//!
//! Invariants:
//! - the `NoSchedule` taint of a condition is on a node exactly while the condition holds; other taints are left alone;
//! - the readiness of a node that renews neither its lease nor its status within the grace period becomes Unknown;
//! - nodes are tainted no faster than their zone allows: hardly or not at all if most of a zone is unready. If no node is
//!   ready anywhere, the controller assumes that it is cut off itself, and evicts nothing;
//! - no node is declared dead for anything that happened before this controller started.

pub(crate) mod config;
mod evictor;
mod figures;
mod health;
mod labels;
mod monitor;
mod pods;
mod roll;
mod tainter;
mod taints;
#[cfg(test)]
mod tests;
mod view;
mod zones;

use std::sync::Arc;

use setpoint::queue::limiter;
use setpoint::{Context, Controller, Event, Key, Queue, Runnable};

use self::evictor::Evictor;
use self::figures::Figures;
use self::monitor::Monitor;
use self::pods::{Hands, PodMarker};
use self::roll::Roll;
use self::tainter::Tainter;
use self::view::{Lease, Node};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::workload::on_node::OnNode;
use crate::workload::pod::Pod;

pub(crate) const ENTRY: Entry = Entry {
    name: "node-lifecycle-controller",
    aliases: &["nodelifecycle"],
    on_by_default: true,
    gates: &[],
    summary: "monitors node health and taints unhealthy nodes",
    watches: &[
        Access::watch("", "nodes"),
        Access::watch("", "pods"),
        Access::watch("coordination.k8s.io", "leases"),
    ],
    writes: &[
        Access::to("", "nodes", &["update"]),
        Access::to("", "nodes/status", &["update"]),
        Access::to("", "pods/status", &["patch"]),
        EVENTS,
    ],
    default_workers: 8,
    build,
};

const COMPONENT: &str = "node-controller";
/// How many pods are marked at once.
const POD_WORKERS: usize = 4;

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let nodes = context.informers.of::<Node>();
    let leases = context.informers.of::<Lease>();
    let pods = context.informers.of::<Pod>();
    let eager = || limiter::eager(&context.runtime.clock);
    let changed = Queue::with_rate_limiter("node_lifecycle_controller", &context.runtime, eager());
    let looks = Queue::with_rate_limiter("node_lifecycle_controller_health", &context.runtime, eager());
    let zones = Queue::with_rate_limiter("node_lifecycle_controller_zones", &context.runtime, eager());
    let placed = Queue::with_rate_limiter("node_lifecycle_controller_pods", &context.runtime, eager());
    let patience = &options.node_lifecycle;
    let roll = Arc::new(Roll::new(patience.clone()));

    let queue = changed.clone();
    nodes.add_handler(move |event: &Event| queue.add(event.object().key().clone()));
    let queue = placed.clone();
    pods.add_handler(move |event: &Event| {
        if pods::is_placed(event) {
            queue.add(event.object().key().clone());
        }
    });
    looks.add(Key::cluster("nodes"));

    let hands = Arc::new(Hands::new(context, COMPONENT));
    let figures = Arc::new(Figures::new(context.metrics.clone()));
    let tainter = Tainter {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        nodes: nodes.lister(),
    };
    let monitor = Monitor {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(COMPONENT),
        nodes: nodes.lister(),
        leases: leases.lister(),
        pods: OnNode::of(&pods),
        roll: roll.clone(),
        hands: hands.clone(),
        zones: zones.clone(),
        figures: figures.clone(),
        patience: patience.clone(),
    };
    let evictor = Evictor {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        nodes: nodes.lister(),
        roll: roll.clone(),
        figures,
    };
    let marker = PodMarker { pods: pods.lister(), nodes: nodes.lister(), roll, hands };
    vec![
        Box::new(
            Controller::new(ENTRY.name, changed, tainter)
                .workers(options.workers(&ENTRY))
                .persistent()
                .waits_for(&nodes),
        ),
        Box::new(
            Controller::new("node-lifecycle-controller-health", looks, monitor)
                .persistent()
                .waits_for(&nodes)
                .waits_for(&leases)
                .waits_for(&pods),
        ),
        Box::new(
            Controller::new("node-lifecycle-controller-zones", zones, evictor).persistent().waits_for(&nodes),
        ),
        Box::new(
            Controller::new("node-lifecycle-controller-pods", placed, marker)
                .workers(POD_WORKERS)
                .persistent()
                .waits_for(&nodes)
                .waits_for(&pods),
        ),
    ]
}
