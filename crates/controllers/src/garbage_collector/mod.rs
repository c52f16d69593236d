//! Garbage collector: deletes objects when the last of their owners is gone.
//!
//! Owns: the finalizers `foregroundDeletion` and `orphan` of all objects; owner references to owners that do not
//! exist.
//! Watches: every resource that can be listed, watched and deleted, except for events.
//! Writes: deletes dependents; patches owner references and finalizers.
//! Metrics: `garbagecollector_controller_resources_sync_error_total`.
//!
//! ```text
//!  monitors.rs   discovery → an informer for each kind → the graph
//!  graph.rs      who owns whom; a change → work                               (pure)
//!  identity.rs, absent.rs, uid.rs: the parts of the graph
//!  observe.rs    graph → Observed
//!  plan.rs       keep, remove owner references, or delete                     (pure)
//!  patch.rs      patch bodies                                                 (pure)
//!  collect.rs    the queue "attempt to delete": observe, verify, plan, apply
//!  orphan.rs     the queue "attempt to orphan": release the dependents, then the owner
//! ```
//!
//! Invariants:
//! - an object is deleted only if for each of its owners the monitor saw the deletion, or the API server confirms that it
//!   does not exist, or it waits for its dependents to be deleted. An incomplete or stale graph never deletes an object;
//! - a delete carries the UID and the resource version it was decided on; the version is dropped only if the owners are
//!   unchanged;
//! - an owner that orphans is released only after every dependent was searched for where the graph may be stale;
//! - an owner whose kind is not served, or cannot be discovered, is assumed to exist.

mod absent;
mod collect;
mod graph;
mod identity;
mod monitors;
mod observe;
mod orphan;
mod patch;
mod plan;
mod shared;
#[cfg(test)]
mod tests;
mod uid;

use std::sync::Arc;

use futures::future::BoxFuture;
use setpoint::metrics::Metrics;
use setpoint::queue::limiter;
use setpoint::{Context, Controller, Queue, Runnable};
use tokio_util::sync::CancellationToken;

use self::collect::Collector;
use self::monitors::Monitors;
use self::orphan::Orphaner;
use self::shared::Shared;
use self::uid::Uid;
use crate::flags::{Flag, truth};
use crate::registry::{Access, EVENTS, Entry, Options};

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
    let (runtime, clock) = (&context.runtime, &context.runtime.clock);
    let delete =
        Queue::with_rate_limiter("garbage_collector_attempt_to_delete", runtime, limiter::eager(clock));
    let orphan =
        Queue::with_rate_limiter("garbage_collector_attempt_to_orphan", runtime, limiter::eager(clock));
    let shared = Arc::new(Shared::new(context, delete.clone(), orphan.clone()));
    let workers = options.workers(&ENTRY);
    vec![Box::new(GarbageCollector {
        monitors: Monitors::new(context, shared.clone()),
        deleting: Controller::new("garbage-collector-controller", delete, Collector(shared.clone()))
            .workers(workers)
            .persistent(),
        orphaning: Controller::new("garbage-collector-orphaner", orphan, Orphaner(shared))
            .workers(workers)
            .persistent(),
    })]
}

/// The monitors, and once they have filled the graph, the workers.
struct GarbageCollector {
    monitors: Monitors,
    deleting: Controller<Uid>,
    orphaning: Controller<Uid>,
}

impl Runnable for GarbageCollector {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn observe(&mut self, metrics: &Metrics) {
        self.deleting.observe(metrics);
        self.orphaning.observe(metrics);
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let Self { monitors, deleting, orphaning } = *self;
        let filled = monitors.filled();
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
            tokio::join!(monitors.run(stop), work);
        })
    }
}
