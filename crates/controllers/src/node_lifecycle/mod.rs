//! Node lifecycle: monitors node health, and taints unhealthy nodes.
//!
//! Owns: the taints for node conditions and for cordoned nodes; the conditions of nodes that stopped reporting; the
//! readiness of pods on unready nodes; the deprecated OS and architecture labels.
//! Watches: Nodes, Leases, Pods.
//! Writes: Nodes (update), Node status (update), Pod status (patch).
//!
//! ```text
//!  config.rs     settings
//!  view.rs       typed views of nodes and leases
//!  taints.rs     the taints for a node's conditions                            (pure)
//!  labels.rs     deprecated labels                                             (pure)
//!  health.rs     whether a node has reported recently                          (pure)
//!  zones.rs      the health of each zone, and its eviction rate                (pure)
//!  metrics.rs    metrics: `node_collector_*`
//!  known_nodes.rs  the known state of all nodes, shared by the parts below
//!  monitor.rs    checks all nodes every few seconds
//!  tainter.rs    per node: NoSchedule taints and labels
//!  evictor.rs    per zone: NoExecute taints, rate-limited
//!  pods.rs       marks pods on unready nodes as not ready
//! ```
//!
//! Invariants:
//! - the `NoSchedule` taint of a condition is on a node exactly while the condition holds; other taints are left alone;
//! - the readiness of a node that renews neither its lease nor its status within the grace period becomes Unknown;
//! - nodes are tainted no faster than their zone allows: hardly or not at all if most of a zone is unready. If no node
//!   is ready anywhere, the controller assumes that it is cut off itself, and evicts nothing;
//! - no node is declared dead for anything that happened before this controller started.

pub(crate) mod config;
mod evictor;
mod health;
mod known_nodes;
mod labels;
mod metrics;
mod monitor;
mod pods;
mod tainter;
mod taints;
#[cfg(test)]
mod tests;
mod view;
mod zones;

use std::sync::Arc;

use setpoint::handler::{Handler, enqueue_self};
use setpoint::{Client, Clock, Context, Informer, Key, Lister, Runnable};

use self::config::NodeLifecycle;
use self::evictor::Evictor;
use self::known_nodes::KnownNodes;
use self::metrics::NodeMetrics;
use self::monitor::Monitor;
use self::pods::{PodMarker, PodReadiness};
use self::tainter::Tainter;
use self::view::{Lease, Node};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
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
/// The number of pods marked concurrently.
const POD_WORKERS: usize = 4;

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let nodes = context.informers.of::<Node>();
    let leases = context.informers.of::<Lease>();
    let pods = context.informers.of::<Pod>();
    let changed = wiring::queue(context, "node_lifecycle_controller");
    let checks = wiring::queue(context, "node_lifecycle_controller_health");
    let zones = wiring::queue(context, "node_lifecycle_controller_zones");
    let placed = wiring::queue(context, "node_lifecycle_controller_pods");
    nodes.add_handler(enqueue_self(&changed));
    pods.add_handler(enqueue_self(&placed).when(pods::is_placed));
    checks.add(Key::cluster("nodes"));

    let shared = MonitorState::new(context, &nodes, &options.node_lifecycle);
    let readiness = Arc::new(PodReadiness::new(context, COMPONENT));
    let monitor = Monitor {
        shared: shared.clone(),
        recorder: context.recorder(COMPONENT),
        leases: leases.lister(),
        pods: OnNode::of(&pods),
        readiness: readiness.clone(),
        zones: zones.clone(),
        config: options.node_lifecycle.clone(),
    };
    let marker =
        PodMarker { pods: pods.lister(), nodes: nodes.lister(), known: shared.known.clone(), readiness };
    let (tainter, evictor) = (Tainter(shared.clone()), Evictor(shared));
    let health = [&nodes, &leases, &pods];
    vec![
        Box::new(wiring::controller(&ENTRY, options, changed, tainter, [&nodes])),
        Box::new(wiring::part("node-lifecycle-controller-health", checks, monitor, health)),
        Box::new(wiring::part("node-lifecycle-controller-zones", zones, evictor, [&nodes])),
        Box::new(
            wiring::part("node-lifecycle-controller-pods", placed, marker, [&nodes, &pods])
                .workers(POD_WORKERS),
        ),
    ]
}

/// State shared by the parts of the controller.
#[derive(Clone)]
struct MonitorState {
    client: Client,
    clock: Clock,
    nodes: Lister<Node>,
    known: Arc<KnownNodes>,
    metrics: Arc<NodeMetrics>,
}

impl MonitorState {
    fn new(context: &Context, nodes: &Informer, config: &NodeLifecycle) -> Self {
        Self {
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            nodes: nodes.lister(),
            known: Arc::new(KnownNodes::new(config.clone())),
            metrics: Arc::new(NodeMetrics::new(context.metrics.clone())),
        }
    }
}
