//! ResourceQuota: computes the usage of quotas.
//!
//! Owns: `status` of ResourceQuotas. The API server raises usage when it admits an object; this controller recounts
//! after deletions, and every five minutes.
//! Watches: ResourceQuotas, and every kind that a quota limits.
//! Writes: ResourceQuota status (update).
//!
//! ```text
//!  view.rs       typed view of a ResourceQuota
//!  monitors.rs   the kinds that quotas limit, each watched once a quota needs it
//!  count.rs      from objects to usage                                       (pure)
//!  reconcile.rs  observe, count, write
//! ```
//!
//! Invariants:
//! - a resource that cannot be counted keeps its previous usage;
//! - creations are not counted here: they were counted at admission, and others may have been admitted that the cache
//!   does not show yet;
//! - status lists only resources that the quota limits and that can be counted.

mod count;
mod monitors;
mod reconcile;
mod view;

use std::sync::Arc;

use setpoint::{Context, Event, Runnable};

use self::monitors::Monitors;
use self::reconcile::Counter;
use self::view::ResourceQuota;
use crate::flags::{Flag, duration};
use crate::registry::{Access, Entry, Options};
use crate::wiring;
use setpoint::write_tracker::WriteTracker;

pub(crate) const ENTRY: Entry = Entry {
    name: "resourcequota-controller",
    aliases: &["resourcequota"],
    on_by_default: true,
    gates: &[],
    summary: "computes the usage of quotas",
    watches: &[Access::watch("", "resourcequotas"), Access::watch("*", "*")],
    writes: &[Access::to("", "resourcequotas/status", &["update"])],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("concurrent-resource-quota-syncs", &ENTRY, "5"),
    Flag::new(
        "resource-quota-sync-period",
        "DURATION",
        "5m",
        "How often usage is recounted in full; 0 disables it.",
        |options, text| duration(text).map(|period| options.quota_sync_period = period),
    ),
];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let quotas = context.informers.of::<ResourceQuota>();
    let queue = wiring::queue(context, "resourcequota_primary");
    let changed = queue.clone();
    let writes = Arc::new(WriteTracker::new(&quotas));
    let own = writes.clone();
    quotas.add_handler(move |event: &Event| {
        let limits = |object: &setpoint::Object| {
            object.view::<ResourceQuota>().ok().map(|quota| quota.spec.hard.clone())
        };
        let awaited =
            own.should_reconcile(event.object().key(), event) && own.is_waiting(event.object().key());
        let concerns = match event {
            Event::Updated { old, new } => limits(old) != limits(new),
            _ => true,
        };
        if concerns || awaited {
            changed.add(event.object().key().clone());
        }
    });
    let counter = Counter {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        quotas: quotas.lister(),
        monitors: Monitors::new(context, quotas.lister(), queue.clone()),
        writes,
        full_count: options.quota_sync_period,
    };
    let controller = wiring::controller(&ENTRY, options, queue, counter, [&quotas]);
    vec![Box::new(controller)]
}
