//! A reconciler that handles only this replica's keys.

use super::Shards;
use crate::informer::Informer;
use crate::{Key, Outcome, Queue, ReconcileError, Reconciler};

/// A reconciler that handles the keys of this replica's shards and ignores all others.
///
/// ```
/// # fn example<R: setpoint::Reconciler<Key = setpoint::Key>>(context: &setpoint::Context, pods: &setpoint::Informer, reconciler: R) {
/// use setpoint::{Queue, shard::Sharded};
/// let queue = context.queue("web");
/// let reconciler = Sharded::new(&context.shards, &queue, pods, reconciler);
/// let controller = context.controller("web", queue, reconciler);
/// # }
/// ```
pub struct Sharded<R> {
    shards: Shards,
    inner: R,
}

impl<R: Reconciler<Key = Key>> Sharded<R> {
    /// Wraps a reconciler. `primary` is the informer for the objects that the keys name. They are enqueued when this
    /// replica gains their shard.
    pub fn new(shards: &Shards, queue: &Queue<Key>, primary: &Informer, inner: R) -> Self {
        let (queue, objects) = (queue.clone(), primary.objects().clone());
        shards.on_begin(move |is_begun| {
            let keys = objects.list(None).into_iter().map(|object| object.key().clone());
            keys.filter(is_begun).for_each(|key| queue.add(key));
        });
        Self { shards: shards.clone(), inner }
    }
}

impl<R: Reconciler<Key = Key>> Reconciler for Sharded<R> {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(_working) = self.shards.begin(key) else { return Ok(Outcome::Settled) };
        let worked = self.shards.fence().guard(self.inner.reconcile(key)).await;
        worked.unwrap_or_else(|| Err(ReconcileError::retry(format!("lost the membership while at {key}"))))
    }
}
