//! Garbage collector: objects go when the last of their owners has gone.
//!
//! Owns: the finalizers `foregroundDeletion` and `orphan` of all objects; owner references to owners
//! that do not exist.
//! Watches: every resource there is that can be listed, watched and deleted, but for events.
//! Writes: deletes dependents; patches owner references and finalizers.
//! Counts: `garbagecollector_controller_resources_sync_error_total`.
//!
//! ```text
//!  monitors.rs   discovery → an informer for each kind → the graph; looks again every 30 s
//!  graph.rs      who owns whom; a change → work                             (pure)
//!  identity.rs, absent.rs, uid.rs: what the graph is made of
//!  observe.rs    graph → Observed
//!  plan.rs       keep, let go of some owners, or delete                      (pure)
//!  patch.rs      the bodies of patches                                       (pure)
//!  reconcile.rs  the queue "attempt to delete": observe, ask, plan, apply
//!  orphan.rs     the queue "attempt to orphan": release dependents, then the owner
//!  shared.rs     what these three share, and the requests they make
//! ```
//!
//! What always holds:
//! - an object is deleted only if each of its owners was seen to go by its monitor, or is not there
//!   when the API server is asked, or waits for its dependents to be deleted; so a graph that is
//!   incomplete, or behind, never costs an object its life;
//! - a delete carries the uid and the version it was decided on; only if the owners are still the same
//!   may it do without the version;
//! - an owner that orphans goes only after every dependent was looked for where the graph may be behind;
//! - an owner whose kind is not served, or cannot be discovered, counts as one that may exist.

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
use self::shared::Shared;
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
        "Remove dependents with their owners.",
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
    let shared = Arc::new(Shared::new(context, delete.clone(), orphan.clone()));
    let monitors = Monitors::new(context, kinds.clone(), shared.clone());
    vec![Box::new(GarbageCollector {
        filled: monitors.filled(),
        // What is under way when it stops serves nothing any more.
        monitoring: wiring::part("garbage-collector-monitors", kinds, monitors, [])
            .drain_within(Duration::from_secs(1)),
        deleting: wiring::controller(&ENTRY, options, delete, Collector(shared.clone()), []),
        orphaning: wiring::part("garbage-collector-orphaner", orphan, Orphaner(shared), [])
            .workers(options.workers(&ENTRY)),
    })]
}

/// The monitors, and once they have filled the graph, the workers.
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
