//! EndpointSlice: lists the pods of every Service that has a selector, by default a hundred per slice.
//!
//! Owns: the slices labelled as managed by this controller.
//! Watches: Services, Pods, Nodes, EndpointSlices.
//! Writes: creates, updates and deletes EndpointSlices.
//!
//! ```text
//!  figures.rs    metrics
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

mod figures;
mod hints;
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

use setpoint::handler::enqueue_self;
use setpoint::queue::limiter;
use setpoint::{Context, Controller, Event, Key, Queue, Runnable};

use self::node::Node;
use self::reconcile::{SliceKeeper, ZoneWatcher};
use self::topology::Topology;
use crate::discovery::backend::Backend;
use crate::discovery::changes::SliceHands;
use crate::discovery::figures::Figures;
use crate::discovery::membership::follow_pods;
use crate::discovery::service::Service;
use crate::discovery::settings::most;
use crate::discovery::slice::Slice;
use crate::discovery::wake::{follow_slices, index_slices};
use crate::discovery::{MAX_RETRIES, slow_retries};
use crate::flags::{Flag, duration};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::workload::pace::Pace;
use setpoint::own_writes::OwnWrites;

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
        |options, text| most(text).map(|most| options.endpoints.most_in_slice = most),
    ),
    Flag::new(
        "endpointslice-updates-batch-period",
        "DURATION",
        "0s",
        "How long pod changes are batched before slices are written.",
        |options, text| duration(text).map(|period| options.endpoints.slices_batch = period),
    ),
];

/// How the controller signs its slices, and its events.
const MANAGER: &str = "endpointslice-controller.k8s.io";
const COMPONENT: &str = "endpoint-slice-controller";

/// A change of a slice waits at least this long: often others of the same service follow.
const SLICE_DELAY: Duration = Duration::from_secs(1);

/// The longest wait between two tries.
const LONGEST_RETRY: Duration = Duration::from_secs(1000);

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let services = context.informers.of::<Service>();
    let pods = context.informers.of::<Backend>();
    let nodes = context.informers.of::<Node>();
    let slices = context.informers.of::<Slice>();
    let retries = slow_retries(&context.runtime.clock, LONGEST_RETRY);
    let queue = Queue::with_rate_limiter("endpoint_slice", &context.runtime, retries);
    let zones = Queue::with_rate_limiter(
        "endpoint_slice_topology",
        &context.runtime,
        limiter::eager(&context.runtime.clock),
    );
    let pace = Arc::new(Pace::new(context.runtime.clock.clone()));
    let writes = Arc::new(OwnWrites::new(&slices));
    let topology = Arc::new(Topology::default());
    let figures = Arc::new(Figures::new(&context.metrics, &figures::NAMES, options.endpoints.most_in_slice));

    services.add_handler(enqueue_self(&queue));
    let batch = options.endpoints.slices_batch;
    let (paced, later) = (pace.clone(), queue.clone());
    follow_pods(&pods, &services, move |service| {
        let delay = paced.delay(&service).max(batch);
        later.add_after(service, delay);
    });
    index_slices(&slices);
    follow_slices(&slices, &queue, &writes, MANAGER, batch.max(SLICE_DELAY));
    let changed = zones.clone();
    nodes.add_handler(move |event: &Event| {
        if node::moves_zones(event) {
            changed.add(Key::cluster("zones"));
        }
    });

    let watcher = ZoneWatcher { nodes: nodes.lister(), topology: topology.clone(), services: queue.clone() };
    let keeper = SliceKeeper {
        recorder: context.recorder(COMPONENT),
        services: services.lister(),
        pods: pods.lister(),
        nodes: nodes.lister(),
        slices: slices.lister(),
        hands: SliceHands::new(context, writes.clone(), figures.clone()),
        metrics: context.metrics.clone(),
        figures,
        distributions: Default::default(),
        triggers: Default::default(),
        topology,
        writes,
        pace,
        most_in_slice: options.endpoints.most_in_slice,
        same_zone_or_node: options.gates.on("PreferSameTrafficDistribution"),
    };
    let watcher = Controller::new("endpointslice-controller-zones", zones, watcher).waits_for(&nodes);
    let controller = Controller::new(ENTRY.name, queue, keeper)
        .workers(options.workers(&ENTRY))
        .persistent()
        .max_retries(MAX_RETRIES)
        .waits_for(&services)
        .waits_for(&pods)
        .waits_for(&nodes)
        .waits_for(&slices);
    vec![Box::new(watcher), Box::new(controller)]
}
