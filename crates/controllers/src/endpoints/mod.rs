//! Endpoints: lists the addresses of the pods of every Service that has a selector.
//!
//! Owns: the Endpoints object of each such Service; it has the Service's name.
//! Watches: Services, Pods, Endpoints.
//! Writes: creates, updates and deletes Endpoints.
//!
//! ```text
//!  plan.rs       the desired Endpoints of a Service             (pure)
//!  capacity.rs   which addresses to leave out at the limit      (pure)
//!  reconcile.rs  observe, plan, write
//! ```
//!
//! Invariants:
//! - terminating pods are not listed, unless the Service publishes not-ready addresses;
//! - at most [`capacity::MAX_ADDRESSES`] addresses are listed, ready ones first; an annotation says if some were
//!   left out;
//! - an object is not reconciled before the cache shows the last write;
//! - an object whose Service is gone is deleted after the API server has confirmed that it is gone.

mod capacity;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use setpoint::handler::{Handler, enqueue_self};
use setpoint::{Context, Event, Key, Lister, Runnable};

use self::reconcile::EndpointsKeeper;
use crate::discovery::MAX_RETRIES;
use crate::discovery::backend::Backend;
use crate::discovery::membership::follow_pods;
use crate::discovery::service::Service;
use crate::discovery::subset::Endpoints;
use crate::flags::{Flag, duration};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::throttle::Throttle;
use setpoint::write_tracker::WriteTracker;

pub(crate) const ENTRY: Entry = Entry {
    name: "endpoints-controller",
    aliases: &["endpoint"],
    on_by_default: true,
    gates: &[],
    summary: "lists the addresses of a Service's pods in its Endpoints",
    watches: &[Access::watch("", "services"), Access::watch("", "pods"), Access::watch("", "endpoints")],
    writes: &[Access::to("", "endpoints", &["create", "delete", "update"]), EVENTS],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("concurrent-endpoint-syncs", &ENTRY, "5"),
    Flag::new(
        "endpoint-updates-batch-period",
        "DURATION",
        "0s",
        "How long pod changes are batched before Endpoints are written.",
        |options, text| duration(text).map(|period| options.endpoints.endpoints_batch = period),
    ),
];

/// The event source and `managed-by` label value.
const COMPONENT: &str = "endpoint-controller";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let services = context.informers.of::<Service>();
    let pods = context.informers.of::<Backend>();
    let endpoints = context.informers.of::<Endpoints>();
    let queue = wiring::queue(context, "endpoint");
    let throttle = Arc::new(Throttle::new(context.runtime.clock.clone()));
    let writes = Arc::new(WriteTracker::new(&endpoints));

    services.add_handler(enqueue_self(&queue));
    follow_pods(&pods, &services, &queue, &throttle, options.endpoints.endpoints_batch);
    let concerns_us = endpoints_predicate(writes.clone(), services.lister());
    endpoints.add_handler(enqueue_self(&queue).when(concerns_us));

    let keeper = EndpointsKeeper {
        client: context.client.clone(),
        recorder: context.recorder(COMPONENT),
        services: services.lister(),
        pods: pods.lister(),
        endpoints: endpoints.lister(),
        triggers: Default::default(),
        writes,
        throttle,
    };
    let controller = wiring::controller(&ENTRY, options, queue, keeper, [&services, &pods, &endpoints])
        .max_retries(MAX_RETRIES);
    vec![Box::new(controller)]
}

/// Whether a change to Endpoints by someone else must be reconciled.
fn endpoints_predicate(
    writes: Arc<WriteTracker<Key>>,
    services: Lister<Service>,
) -> impl Fn(&Event) -> bool + Send + Sync + 'static {
    move |event| {
        let key = event.object().key();
        let news = writes.should_reconcile(key, event);
        match event {
            // Endpoints from before a restart may have lost their Service meanwhile.
            Event::Added { initial, .. } => *initial,
            // Endpoints without a Service are not managed here.
            Event::Updated { .. } => news && !matches!(services.get(key), Ok(None)),
            Event::Deleted { .. } => news,
        }
    }
}
