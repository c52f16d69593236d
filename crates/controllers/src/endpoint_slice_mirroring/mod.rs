//! EndpointSlice mirroring: mirrors Endpoints that are managed by users into EndpointSlices.
//!
//! Owns: the slices labelled as managed by this controller.
//! Watches: Endpoints, Services, EndpointSlices.
//! Writes: creates, updates and deletes EndpointSlices.
//!
//! ```text
//!  metrics.rs    metrics
//!  plan.rs       from Endpoints to slices          (pure)
//!  reconcile.rs  observe, plan, apply
//! ```
//!
//! Invariants:
//! - only Endpoints of Services without a selector are mirrored, and none that opt out by label;
//! - at most 1000 addresses of a subset are mirrored (configurable);
//! - slices are not reconciled before the cache shows the last write.

mod metrics;
mod plan;
mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use setpoint::handler::{Handler, enqueue_self};
use setpoint::{Context, Event, Object, Runnable};

use self::plan::is_to_be_mirrored;
use self::reconcile::Mirror;
use crate::discovery::changes::SliceWriter;
use crate::discovery::metrics::SliceMetrics;
use crate::discovery::service::Service;
use crate::discovery::settings::parse_max_endpoints;
use crate::discovery::slice::Slice;
use crate::discovery::subset::Endpoints;
use crate::discovery::wake::{follow_slices, index_slices};
use crate::discovery::{MAX_RETRIES, slow_queue};
use crate::flags::{Flag, duration};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use setpoint::write_tracker::WriteTracker;

pub(crate) const ENTRY: Entry = Entry {
    name: "endpointslice-mirroring-controller",
    aliases: &["endpointslicemirroring"],
    on_by_default: true,
    gates: &[],
    summary: "mirrors user-managed Endpoints into EndpointSlices",
    watches: &[
        Access::watch("", "endpoints"),
        Access::watch("", "services"),
        Access::watch("discovery.k8s.io", "endpointslices"),
    ],
    writes: &[Access::to("discovery.k8s.io", "endpointslices", &["create", "delete", "update"]), EVENTS],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("mirroring-concurrent-service-endpoint-syncs", &ENTRY, "5"),
    Flag::new(
        "mirroring-max-endpoints-per-subset",
        "N",
        "1000",
        "Maximum number of addresses mirrored per subset.",
        |options, text| parse_max_endpoints(text).map(|max| options.endpoints.max_endpoints_per_subset = max),
    ),
    Flag::new(
        "mirroring-endpointslice-updates-batch-period",
        "DURATION",
        "0s",
        "How long changes to mirrored slices are batched before they are processed.",
        |options, text| duration(text).map(|period| options.endpoints.mirroring_batch = period),
    ),
];

/// The `managed-by` label value and event source.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const COMPONENT: &str = "endpoint-slice-mirroring-controller";

/// The maximum backoff.
const MAX_RETRY: Duration = Duration::from_secs(100);

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let endpoints = context.informers.of::<Endpoints>();
    let services = context.informers.of::<Service>();
    let slices = context.informers.of::<Slice>();
    let queue = slow_queue(context, "endpoint_slice_mirroring", MAX_RETRY);
    let writes = Arc::new(WriteTracker::new(&slices));
    let slice_metrics = Arc::new(SliceMetrics::new(
        &context.metrics,
        &metrics::NAMES,
        options.endpoints.max_endpoints_per_subset,
    ));

    endpoints.add_handler(enqueue_self(&queue).when(concerns_mirrored_endpoints));
    services.add_handler(enqueue_self(&queue).when(concerns_service_without_selector));
    index_slices(&slices);
    follow_slices(&slices, &queue, &writes, MANAGER, options.endpoints.mirroring_batch);

    let mirror = Mirror {
        recorder: context.recorder(COMPONENT),
        endpoints: endpoints.lister(),
        services: services.lister(),
        slices: slices.lister(),
        writer: SliceWriter::new(context, writes.clone(), slice_metrics.clone()),
        clock: context.runtime.clock.clone(),
        metrics: context.metrics.clone(),
        slice_metrics,
        writes,
        max_endpoints: options.endpoints.max_endpoints_per_subset,
    };
    let controller = wiring::controller(&ENTRY, options, queue, mirror, [&endpoints, &services, &slices])
        .max_retries(MAX_RETRIES);
    vec![Box::new(controller)]
}

fn concerns_mirrored_endpoints(event: &Event) -> bool {
    let mirrored = |endpoints: &Object| {
        endpoints.view::<Endpoints>().is_ok_and(|view| is_to_be_mirrored(endpoints.meta(), view))
    };
    event.states().any(mirrored)
}

/// Whether a Service without a selector was added or deleted, or a Service gained or lost its selector.
fn concerns_service_without_selector(event: &Event) -> bool {
    let unselecting =
        |service: &Object| service.view::<Service>().is_ok_and(|service| !service.has_selector());
    match event {
        Event::Updated { old, new } => unselecting(old) != unselecting(new),
        event => unselecting(event.object()),
    }
}
