//! Periodic cleanup of expired objects.
//!
//! Invariants: a delete carries the uid of the observed object; a failed delete is retried with the next sweep.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::client::{DeleteOptions, Optional};
use setpoint::{
    Cached, Client, Clock, Context, Key, Kind, Lister, Outcome, Queue, ReconcileError, Reconciler, Runnable,
    View,
};

use crate::registry::Entry;
use crate::wiring;

/// The period, and which objects to delete.
pub(crate) struct Sweep<V> {
    pub(crate) queue: &'static str,
    pub(crate) period: Duration,
    pub(crate) is_expired: fn(&Cached<V>, Timestamp) -> bool,
}

impl<V: View> Sweep<V> {
    /// Builds the controller.
    pub(crate) fn build(self, context: &Context, entry: &Entry) -> Vec<Box<dyn Runnable>> {
        let informer = context.informers.of::<V>();
        let queue = Queue::new(self.queue, &context.runtime);
        queue.add(Key::cluster("all"));
        let sweeper = Sweeper {
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            listed: informer.lister(),
            sweep: self,
        };
        vec![Box::new(wiring::part(entry.name, queue, sweeper, [&informer]))]
    }
}

struct Sweeper<V> {
    client: Client,
    clock: Clock,
    listed: Lister<V>,
    sweep: Sweep<V>,
}

impl<V: View> Reconciler for Sweeper<V> {
    type Key = Key;

    /// All objects share one key.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let now = self.clock.now();
        for object in self.listed.list(None)?.iter().filter(|object| (self.sweep.is_expired)(object, now)) {
            self.remove(object).await;
        }
        Ok(Outcome::CheckAfter(self.sweep.period))
    }
}

impl<V: View> Sweeper<V> {
    async fn remove(&self, object: &Cached<V>) {
        let kind = Kind::of::<V>();
        let delete = DeleteOptions::of_uid(object.meta().uid.to_string());
        if let Err(error) = self.client.delete(&kind, object.key(), &delete).await.optional() {
            tracing::warn!(%kind, key = %object.key(), %error, "cannot delete an expired object");
        }
    }
}
