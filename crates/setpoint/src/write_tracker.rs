//! Tracks writes that a controller has made and that its cache does not show yet.
//!
//! A controller that acts on a cache without its own last writes repeats them, for example by creating two slices
//! instead of one. There are three ways to avoid this:
//! - [`Controller::reads_own_writes`](crate::Controller::reads_own_writes) needs no code. A key is not reconciled
//!   before the caches show what its last reconcile wrote through a [`Client`](crate::Client).
//! - [`WriteTracker`] lets the author record the writes for each owner, and read the owner's objects only once the cache
//!   shows all of them. The rest of the reconcile, such as the status, continues meanwhile, and the controller is not
//!   woken by its own writes.
//! - [`Expectations`](crate::Expectations) counts creates and deletes, for bursts.
//!
//! Invariants:
//! - A cache that has passed the newest write shows all writes, including those to objects that are already gone.
//! - An event for the controller's own write does not need a reconcile.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::object::DecodeError;
use crate::reconcile::WorkKey;
use crate::{Cached, Event, Informer, Object, View};

/// The writes of one controller to one kind, grouped by owner.
///
/// ```no_run
/// # async fn example(slices: setpoint::Informer, service: setpoint::Key, client: setpoint::Client)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::discovery::v1::EndpointSlice;
/// use setpoint::{Kind, write_tracker::WriteTracker};
/// let write_tracker = WriteTracker::new(&slices);
/// let lister = slices.lister::<EndpointSlice>();
/// if let Some(found) = write_tracker.list_if_caught_up(&service, || lister.list(service.namespace()))? {
///     let slice = serde_json::json!({"metadata": {"generateName": "web-"}});
///     let reply = client.create(&Kind::of::<EndpointSlice>(), service.namespace(), &slice).await?;
///     write_tracker.record_write(&service, &reply); // not looked at again before the cache shows it
/// }
/// # Ok(()) }
/// ```
pub struct WriteTracker<K> {
    informer: Informer,
    /// At most one entry per owner, forgotten with it.
    owners: Mutex<BTreeMap<K, Writes>>,
}

#[derive(Default)]
struct Writes {
    /// The last write to each object, by uid. Bounded by the objects of one owner and those it deleted.
    objects: BTreeMap<Box<str>, PendingWrite>,
    /// A caller waits for the cache.
    awaited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingWrite {
    /// Written at this resource version.
    At(u64),
    Deleted,
}

impl<K: WorkKey> WriteTracker<K> {
    /// Creates a tracker. `informer` is the cache that has to catch up.
    pub fn new(informer: &Informer) -> Self {
        Self { informer: informer.clone(), owners: Mutex::new(BTreeMap::new()) }
    }

    /// Records a create or an update. `reply` is the object that the API server returned.
    pub fn record_write(&self, owner: &K, reply: &Object) {
        self.note(owner, &reply.meta().uid, PendingWrite::At(reply.meta().revision()));
    }

    /// Records the deletion of the object with this uid.
    pub fn record_delete(&self, owner: &K, uid: &str) {
        self.note(owner, uid, PendingWrite::Deleted);
    }

    /// Removes an owner that was deleted or that the controller no longer handles.
    pub fn forget(&self, owner: &K) {
        self.owners.lock().remove(owner);
    }

    /// Calls `list` and returns its result if the cache shows everything written for the owner.
    pub fn list_if_caught_up<V: View>(
        &self,
        owner: &K,
        list: impl FnOnce() -> Result<Vec<Cached<V>>, DecodeError>,
    ) -> Result<Option<Vec<Cached<V>>>, DecodeError> {
        // Read the revision before listing: what the cache learns afterwards must not satisfy the check.
        let revision = self.informer.revision();
        let listed = list()?;
        let mut owners = self.owners.lock();
        let Some(writes) = owners.get_mut(owner) else { return Ok(Some(listed)) };
        let still_there = |uid: &str| listed.iter().any(|object| *object.meta().uid == *uid);
        let hidden = |uid: &str, written: PendingWrite| match written {
            PendingWrite::At(at) => at > revision,
            PendingWrite::Deleted => still_there(uid),
        };
        writes.awaited = writes.objects.iter().any(|(uid, written)| hidden(uid, *written));
        Ok((!writes.awaited).then_some(listed))
    }

    /// Returns whether a change was made by another client, or is one that a caller waits for.
    pub fn should_reconcile(&self, owner: &K, event: &Event) -> bool {
        let mut owners = self.owners.lock();
        let Some(writes) = owners.get_mut(owner) else { return true };
        let meta = event.object().meta();
        let own = match event {
            Event::Deleted { .. } => writes.objects.remove(&meta.uid) == Some(PendingWrite::Deleted),
            _ => match writes.objects.get(&meta.uid) {
                Some(PendingWrite::At(at)) => meta.revision() <= *at,
                Some(PendingWrite::Deleted) => true,
                None => false,
            },
        };
        !own || writes.awaited
    }

    /// Returns whether a caller waits for the cache to show the owner's writes.
    pub fn is_waiting(&self, owner: &K) -> bool {
        self.owners.lock().get(owner).is_some_and(|writes| writes.awaited)
    }

    fn note(&self, owner: &K, uid: &str, written: PendingWrite) {
        let mut owners = self.owners.lock();
        owners.entry(owner.clone()).or_default().objects.insert(uid.into(), written);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use futures::stream::BoxStream;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::source::{ObjectList, Selection, Source, WatchItem};
    use crate::{ClientError, Clock, Informers, Key, Kind, Metadata, Rng, Runtime};

    /// Is never called: the cache stays as it is.
    struct PendingSource;

    impl Source for PendingSource {
        fn list<'a>(
            &'a self,
            _: &'a Kind,
            _: &'a Selection,
        ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
            Box::pin(std::future::pending())
        }

        fn watch<'a>(
            &'a self,
            _: &'a Kind,
            _: &'a Selection,
            _: &'a str,
        ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
            Box::pin(std::future::pending())
        }
    }

    fn object(uid: &str, version: &str) -> Object {
        let meta = Metadata {
            name: uid.into(),
            uid: uid.into(),
            resource_version: version.into(),
            ..Metadata::default()
        };
        Object::with_metadata(meta, Bytes::from_static(b"{}"))
    }

    fn writes() -> (WriteTracker<Key>, Key) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let informers = Informers::new(Arc::new(PendingSource), Runtime { clock, rng: Rng::seeded(1) });
        (WriteTracker::new(&informers.of::<ConfigMap>()), Key::namespaced("shop", "web"))
    }

    fn cached(objects: &[Object]) -> Result<Vec<Cached<ConfigMap>>, DecodeError> {
        objects.iter().cloned().map(Cached::new).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_not_listed_before_the_cache_shows_its_writes() {
        let (writes, owner) = writes();
        let shown = |objects: &[Object]| {
            writes.list_if_caught_up(&owner, || cached(objects)).expect("readable").is_some()
        };
        assert!(shown(&[]));
        writes.record_write(&owner, &object("a", "7"));
        assert!(!shown(&[]), "the cache is at version 0");
        let other = Key::namespaced("shop", "db");
        assert!(writes.list_if_caught_up(&other, || cached(&[])).expect("readable").is_some());
        writes.forget(&owner);
        writes.record_delete(&owner, "b");
        assert!(!shown(&[object("b", "3")]) && writes.is_waiting(&owner));
        assert!(shown(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_of_the_controllers_own_write_needs_no_reconcile() {
        let (writes, owner) = writes();
        writes.record_write(&owner, &object("a", "7"));
        let added = |version| Event::Added { object: object("a", version), initial: false };
        assert!(
            !writes.should_reconcile(&owner, &added("7")) && writes.should_reconcile(&owner, &added("8"))
        );
        writes.record_delete(&owner, "b");
        let gone = |uid| Event::Deleted { last: object(uid, "9"), missed: false };
        assert!(!writes.should_reconcile(&owner, &gone("b")) && writes.should_reconcile(&owner, &gone("c")));
    }
}
