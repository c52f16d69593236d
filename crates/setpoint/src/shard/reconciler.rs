//! A reconciler that works on this replica's keys only.

use super::Shards;
use crate::informer::Informer;
use crate::{Key, Outcome, Queue, ReconcileError, Reconciler};

/// Reconciles the keys of this replica's parts and leaves the others to theirs.
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
    /// Wraps a reconciler. `primary` informs of the objects that its keys name: they are queued when this
    /// replica begins to own their part.
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
