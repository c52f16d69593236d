//! EndpointSlice: lists the pods of every Service that has a selector, by default a hundred per slice.
//!
//! Owns: the slices labelled as managed by this controller.
//! Watches: Services, Pods, Nodes, EndpointSlices.
//! Writes: creates, updates and deletes EndpointSlices.
//!
//! ```text
//!  metrics.rs    metrics
//!  node.rs       facts about a node: zone, CPU
//!  plan.rs       from pods to the slices of one address family         (pure)
//!  packing.rs    which endpoint goes into which slice                  (pure)
//!  traffic.rs    hints for a Service's traffic distribution            (pure)
//!  hints.rs      topology-aware hints: each zone gets its share        (pure)
//!  topology.rs   the capacity of each zone, and earlier hints
//!  reconcile.rs  observe, plan, apply
//! ```
//!
//! Invariants:
//! - the slices of a Service are not reconciled before the cache shows the last write, so nothing is created twice;
//! - an endpoint that stays, stays in its slice; slices that change anyway are filled first;
//! - a Service without endpoints has one empty slice per address family;
//! - a slice left over from an earlier Service of the same name is deleted, not rewritten.

mod hints;
mod metrics;
mod node;
mod packing;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
mod topology;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use setpoint::handler::{Handler, enqueue_mapped, enqueue_self};
use setpoint::{Context, Controller, Informer, Key, Object, Runnable};

use self::node::Node;
use self::reconcile::{SliceKeeper, ZoneWatcher};
use self::topology::Topology;
use crate::discovery::backend::Backend;
use crate::discovery::changes::SliceWriter;
use crate::discovery::membership::follow_pods;
use crate::discovery::metrics::SliceMetrics;
use crate::discovery::service::Service;
use crate::discovery::settings::parse_max_endpoints;
use crate::discovery::slice::Slice;
use crate::discovery::wake::{follow_slices, index_slices};
use crate::discovery::{MAX_RETRIES, slow_queue};
use crate::flags::{Flag, duration};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::throttle::Throttle;
use setpoint::write_tracker::WriteTracker;

pub(crate) const ENTRY: Entry = Entry {
    name: "endpointslice-controller",
    aliases: &["endpointslice"],
    on_by_default: true,
    gates: &[],
    summary: "lists a Service's pods in EndpointSlices",
    watches: &[
        Access::watch("", "services"),
        Access::watch("", "pods"),
        Access::watch("", "nodes"),
        Access::watch("discovery.k8s.io", "endpointslices"),
    ],
    writes: &[Access::to("discovery.k8s.io", "endpointslices", &["create", "delete", "update"]), EVENTS],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("concurrent-service-endpoint-syncs", &ENTRY, "5"),
    Flag::new(
        "max-endpoints-per-slice",
        "N",
        "100",
        "Maximum number of endpoints in a slice.",
        |options, text| parse_max_endpoints(text).map(|max| options.endpoints.max_endpoints_per_slice = max),
    ),
    Flag::new(
        "endpointslice-updates-batch-period",
        "DURATION",
        "0s",
        "How long pod changes are batched before slices are written.",
        |options, text| duration(text).map(|period| options.endpoints.slices_batch = period),
    ),
];

/// The `managed-by` label value and event source.
const MANAGER: &str = "endpointslice-controller.k8s.io";
const COMPONENT: &str = "endpoint-slice-controller";

/// Slice events are delayed by this much: other slices of the Service often follow.
const SLICE_DELAY: Duration = Duration::from_secs(1);

/// The maximum backoff.
const MAX_RETRY: Duration = Duration::from_secs(1000);

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let services = context.informers.of::<Service>();
    let pods = context.informers.of::<Backend>();
    let nodes = context.informers.of::<Node>();
    let slices = context.informers.of::<Slice>();
    let queue = slow_queue(context, "endpoint_slice", MAX_RETRY);
    let throttle = Arc::new(Throttle::new(context.runtime.clock.clone()));
    let writes = Arc::new(WriteTracker::new(&slices));
    let topology = Arc::new(Topology::default());
    let slice_metrics = Arc::new(SliceMetrics::new(
        &context.metrics,
        &metrics::NAMES,
        options.endpoints.max_endpoints_per_slice,
    ));

    services.add_handler(enqueue_self(&queue));
    let batch = options.endpoints.slices_batch;
    follow_pods(&pods, &services, &queue, &throttle, batch);
    index_slices(&slices);
    follow_slices(&slices, &queue, &writes, MANAGER, batch.max(SLICE_DELAY));
    let watcher = ZoneWatcher { nodes: nodes.lister(), topology: topology.clone(), services: queue.clone() };
    let keeper = SliceKeeper {
        recorder: context.recorder(COMPONENT),
        services: services.lister(),
        pods: pods.lister(),
        nodes: nodes.lister(),
        slices: slices.lister(),
        writer: SliceWriter::new(context, writes.clone(), slice_metrics.clone()),
        metrics: context.metrics.clone(),
        slice_metrics,
        distributions: Default::default(),
        triggers: Default::default(),
        topology,
        writes,
        throttle,
        max_endpoints_per_slice: options.endpoints.max_endpoints_per_slice,
        same_zone_or_node: options.gates.on("PreferSameTrafficDistribution"),
    };
    let controller = wiring::controller(&ENTRY, options, queue, keeper, [&services, &pods, &nodes, &slices])
        .max_retries(MAX_RETRIES);
    vec![Box::new(zone_controller(context, &nodes, watcher)), Box::new(controller)]
}

/// Builds a controller that recomputes zone capacities when nodes change.
fn zone_controller(context: &Context, nodes: &Informer, watcher: ZoneWatcher) -> Controller {
    let queue = wiring::queue(context, "endpoint_slice_topology");
    let zones = enqueue_mapped(&queue, |_: &Object| [Key::cluster("zones")]);
    nodes.add_handler(zones.when(node::moves_zones));
    wiring::part("endpointslice-controller-zones", queue, watcher, [nodes])
}
