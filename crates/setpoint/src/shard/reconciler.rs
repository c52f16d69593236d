//! A reconciler that handles only this replica's keys.

use super::Shards;
use super::ownership::Registered;
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
pub struct Sharded<R: Reconciler> {
    shards: Shards,
    /// The key that decides which replica handles a key.
    place: fn(&R::Key) -> Key,
    inner: R,
    /// Enqueues keys of newly owned shards, for as long as this exists.
    _registered: Registered,
}

impl<R: Reconciler<Key = Key>> Sharded<R> {
    /// Wraps a reconciler. `primary` is the informer for the objects that the keys name. They are enqueued when this
    /// replica gains their shard.
    pub fn new(shards: &Shards, queue: &Queue<Key>, primary: &Informer, inner: R) -> Self {
        let objects = primary.objects().clone();
        let all = move || objects.list(None).into_iter().map(|object| object.key().clone()).collect();
        Self::placed(shards, queue, Key::clone, all, inner)
    }
}

impl<R: Reconciler> Sharded<R> {
    /// Wraps a reconciler whose keys are not object keys. `place` returns the object key that decides which replica
    /// handles a key. `all` lists the keys to enqueue when this replica gains shards.
    ///
    /// ```
    /// # fn example<K: setpoint::reconcile::WorkKey, R: setpoint::Reconciler<Key = K>>(context: &setpoint::Context,
    /// #     queue: &setpoint::Queue<K>, place: fn(&K) -> setpoint::Key, all: Vec<K>, reconciler: R) {
    /// use setpoint::shard::Sharded;
    /// let reconciler = Sharded::placed(&context.shards, queue, place, move || all.clone(), reconciler);
    /// # }
    /// ```
    pub fn placed(
        shards: &Shards,
        queue: &Queue<R::Key>,
        place: fn(&R::Key) -> Key,
        all: impl Fn() -> Vec<R::Key> + Send + Sync + 'static,
        inner: R,
    ) -> Self {
        let queue = queue.clone();
        let registered = shards.on_begin(move |is_begun| {
            all().into_iter().filter(|key| is_begun(&place(key))).for_each(|key| queue.add(key));
        });
        Self { shards: shards.clone(), place, inner, _registered: registered }
    }
}

impl<R: Reconciler> Reconciler for Sharded<R> {
    type Key = R::Key;

    async fn reconcile(&self, key: &R::Key) -> Result<Outcome, ReconcileError> {
        let Some(_working) = self.shards.begin(&(self.place)(key)) else { return Ok(Outcome::Settled) };
        let worked = self.shards.fence().guard(self.inner.reconcile(key)).await;
        worked.unwrap_or_else(|| Err(ReconcileError::retry(format!("lost the membership while at {key}"))))
    }
}
