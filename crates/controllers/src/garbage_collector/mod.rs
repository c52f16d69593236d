//! Garbage collector: deletes objects when the last of their owners is gone.
//!
//! Owns: the finalizers `foregroundDeletion` and `orphan` of all objects; owner references to owners that do not
//! exist.
//! Watches: every resource that can be listed, watched and deleted, except for events.
//! Writes: deletes dependents; patches owner references and finalizers.
//! Metrics: `garbagecollector_controller_resources_sync_error_total`.
//!
//! ```text
//!  monitors.rs   discovery → an informer for each kind → the graph; rediscovers every 30 s
//!  graph.rs      who owns whom; a change → work                               (pure)
//!  identity.rs, absent.rs, uid.rs: the parts of the graph
//!  observe.rs    graph → Observed
//!  plan.rs       keep, remove owner references, or delete                     (pure)
//!  patch.rs      patch bodies                                                 (pure)
//!  reconcile.rs  the queue "attempt to delete": observe, verify, plan, apply
//!  orphan.rs     the queue "attempt to orphan": release the dependents, then the owner
//!  shared.rs     the state and requests these share
//! ```
//!
//! Invariants:
//! - an object is deleted only if for each of its owners the monitor saw the deletion, or the API server confirms that
//!   it does not exist, or it waits for its dependents to be deleted. An incomplete or stale graph never deletes an
//!   object;
//! - a delete carries the UID and the resource version it was decided on; the version is dropped only if the owners are
//!   unchanged;
//! - an owner that orphans is released only after every dependent was searched for where the graph may be stale;
//! - an owner whose kind is not served, or cannot be discovered, is assumed to exist.

mod absent;
mod graph;
mod identity;
mod monitors;
mod observe;
mod orphan;
mod patch;
mod plan;
mod reconcile;
mod shared;
#[cfg(test)]
mod tests;
mod uid;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use setpoint::metrics::Metrics;
use setpoint::{Context, Controller, Runnable};
use tokio_util::sync::CancellationToken;

use self::monitors::Monitors;
use self::orphan::Orphaner;
use self::reconcile::Collector;
use self::shared::CollectorState;
use self::uid::Uid;
use crate::flags::{Flag, truth};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "garbage-collector-controller",
    aliases: &["garbagecollector"],
    on_by_default: true,
    gates: &[],
    summary: "deletes objects whose owners are gone",
    watches: &[Access::watch("*", "*")],
    writes: &[Access::to("*", "*", &["delete", "patch"]), EVENTS],
    default_workers: 20,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("concurrent-gc-syncs", &ENTRY, "20"),
    Flag::new(
        "enable-garbage-collector",
        "BOOL",
        "true",
        "Delete dependents whose owners are gone.",
        |options, text| truth(text).map(|on| options.garbage_collector = on),
    ),
];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    if !options.garbage_collector {
        return Vec::new();
    }
    let kinds = wiring::queue(context, "garbage_collector_resource_sync");
    let delete = wiring::queue(context, "garbage_collector_attempt_to_delete");
    let orphan = wiring::queue(context, "garbage_collector_attempt_to_orphan");
    let shared = Arc::new(CollectorState::new(context, delete.clone(), orphan.clone()));
    let monitors = Monitors::new(context, kinds.clone(), shared.clone());
    vec![Box::new(GarbageCollector {
        filled: monitors.filled(),
        // Work in progress is worthless once it stops.
        monitoring: wiring::part("garbage-collector-monitors", kinds, monitors, [])
            .drain_within(Duration::from_secs(1)),
        deleting: wiring::controller(&ENTRY, options, delete, Collector(shared.clone()), []),
        orphaning: wiring::part("garbage-collector-orphaner", orphan, Orphaner(shared), [])
            .workers(options.workers(&ENTRY)),
    })]
}

/// Runs the monitors and, once they have filled the graph, the workers.
struct GarbageCollector {
    filled: CancellationToken,
    monitoring: Controller,
    deleting: Controller<Uid>,
    orphaning: Controller<Uid>,
}

impl Runnable for GarbageCollector {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn observe(&mut self, metrics: &Metrics) {
        self.monitoring.observe(metrics);
        self.deleting.observe(metrics);
        self.orphaning.observe(metrics);
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let Self { filled, monitoring, deleting, orphaning } = *self;
        let work = {
            let stop = stop.clone();
            async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = filled.cancelled() => {}
                }
                tokio::join!(Box::new(deleting).run(stop.clone()), Box::new(orphaning).run(stop));
            }
        };
        Box::pin(async move {
            tokio::join!(Box::new(monitoring).run(stop), work);
        })
    }
}
