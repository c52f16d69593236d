//! Namespace: deletes the content of a terminating namespace, then the namespace.
//!
//! Owns: the finalizer `kubernetes` of namespaces; their phase and conditions during deletion.
//! Watches: Namespaces.
//! Writes: deletes every deletable namespaced resource, collection by collection; Namespace status (update) and
//! finalizers (`finalize`).
//!
//! ```text
//!  content.rs    deletes everything of one kind, and reports what is left
//!  findings.rs   results as conditions                                        (pure)
//!  reconcile.rs  discovers, deletes pods and then the rest, reports, finalizes
//! ```
//!
//! Invariants:
//! - pods are deleted first: nothing else is deleted before the last one is gone;
//! - the finalizer stays while anything is left, or while part of the API cannot be discovered;
//! - a namespace that is not being deleted is never touched.

mod content;
mod findings;
mod reconcile;
pub(crate) mod view;

use std::sync::Arc;
use std::time::Duration;

use setpoint::backoff::Backoff;
use setpoint::queue::RateLimiter;
use setpoint::queue::limiter::{Bucket, MaxOf, PerKeyBackoff};
use setpoint::{Clock, Context, Event, Key, Kind, Queue, Runnable};

use self::reconcile::Namespaces;
use self::view::Namespace;
use crate::flags::{Flag, duration};
use crate::registry::{Access, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "namespace-controller",
    aliases: &["namespace"],
    on_by_default: true,
    gates: &[],
    summary: "deletes the content of a terminating namespace, then the namespace",
    watches: &[Access::watch("", "namespaces")],
    writes: &[
        Access::to("", "namespaces/status", &["update"]),
        Access::to("", "namespaces/finalize", &["update"]),
        Access::to("*", "*", &["get", "list", "delete", "deletecollection"]),
    ],
    default_workers: 10,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("concurrent-namespace-syncs", &ENTRY, "10"),
    Flag::new(
        "namespace-sync-period",
        "DURATION",
        "5m",
        "How often a terminating namespace is checked while other finalizers keep it.",
        |options, text| duration(text).map(|period| options.namespace_sync_period = period),
    ),
];

/// Time for all API servers to stop creating objects in the namespace.
const GRACE: Duration = Duration::from_secs(5);

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let namespaces = context.informers.of::<Namespace>();
    let queue = Queue::with_rate_limiter("namespace", &context.runtime, limiter(&context.runtime.clock));
    let deleted = queue.clone();
    namespaces.add_handler(move |event: &Event| {
        if let Event::Added { object, .. } | Event::Updated { new: object, .. } = event
            && object.meta().is_being_deleted()
        {
            deleted.add_after(object.key().clone(), GRACE);
        }
    });
    let reconciler = Namespaces {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        kind: Kind::of::<Namespace>(),
        listed: namespaces.lister(),
        period: options.namespace_sync_period,
    };
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, [&namespaces]);
    vec![Box::new(controller)]
}

/// Namespaces are few, and people wait for them: failures are retried within a minute.
fn limiter(clock: &Clock) -> Arc<dyn RateLimiter<Key>> {
    let per_key = PerKeyBackoff::new(Backoff::doubling(Duration::from_millis(5), Duration::from_secs(60)));
    Arc::new(MaxOf::new(vec![Arc::new(per_key), Arc::new(Bucket::new(clock.clone(), 10.0, 100))]))
}
