//! What a controller has written and its cache has yet to show.
//!
//! A controller that plans on a cache which does not show its last writes makes them again: two slices
//! where one was wanted. There are three ways to read one's own writes:
//! - [`Controller::reads_own_writes`](crate::Controller::reads_own_writes): nothing to do for the author. A
//!   key is not worked on before the caches show what its last reconcile wrote through a
//!   [`Client`](crate::Client);
//! - [`OwnWrites`]: the author notes what is written for each owner, and looks at an owner again only once
//!   the cache shows all of it. The rest of a reconcile, such as the status, goes on meanwhile, and the
//!   controller is not woken by its own writes coming back;
//! - [`Expectations`](crate::Expectations): counted creates and deletes, for bursts.
//!
//! What always holds:
//! - a cache that has come past the newest write shows all writes, also those whose objects are gone again;
//! - a change that is nothing but the controller's own write, coming back, is no news.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::object::DecodeError;
use crate::reconcile::WorkKey;
use crate::{Cached, Event, Informer, Object, View};

/// The writes of one controller to one kind, by the owner they were made for.
///
/// ```no_run
/// # async fn example(slices: setpoint::Informer, service: setpoint::Key, client: setpoint::Client)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::discovery::v1::EndpointSlice;
/// use setpoint::{Kind, own_writes::OwnWrites};
/// let own_writes = OwnWrites::new(&slices);
/// let lister = slices.lister::<EndpointSlice>();
/// if let Some(found) = own_writes.once_shown(&service, || lister.list(service.namespace()))? {
///     let slice = serde_json::json!({"metadata": {"generateName": "web-"}});
///     let reply = client.create(&Kind::of::<EndpointSlice>(), service.namespace(), &slice).await?;
///     own_writes.wrote(&service, &reply); // not looked at again before the cache shows it
/// }
/// # Ok(()) }
/// ```
pub struct OwnWrites<K> {
    informer: Informer,
    /// At most one entry per owner, forgotten with it.
    owners: Mutex<BTreeMap<K, Writes>>,
}

#[derive(Default)]
struct Writes {
    /// What became of each object, by uid: at most the objects of one owner and those it deleted.
    objects: BTreeMap<Box<str>, Written>,
    /// Somebody waits for the cache.
    awaited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Up to this version.
    At(u64),
    Deleted,
}

impl<K: WorkKey> OwnWrites<K> {
    /// Nothing has been written yet; `informer` is the cache to be waited for.
    pub fn new(informer: &Informer) -> Self {
        Self { informer: informer.clone(), owners: Mutex::new(BTreeMap::new()) }
    }

    /// An object was created or updated; `reply` is what the API server made of it.
    pub fn wrote(&self, owner: &K, reply: &Object) {
        self.note(owner, &reply.meta().uid, Written::At(reply.meta().revision()));
    }

    /// The object of this uid was deleted.
    pub fn deleted(&self, owner: &K, uid: &str) {
        self.note(owner, uid, Written::Deleted);
    }

    /// The owner is gone, or none of the controller's business any more.
    pub fn forget(&self, owner: &K) {
        self.owners.lock().remove(owner);
    }

    /// What `list` finds in the cache, if the cache shows all that was written for the owner.
    pub fn once_shown<V: View>(
        &self,
        owner: &K,
        list: impl FnOnce() -> Result<Vec<Cached<V>>, DecodeError>,
    ) -> Result<Option<Vec<Cached<V>>>, DecodeError> {
        // Asked first: what the cache comes to show afterwards does not count.
        let revision = self.informer.revision();
        let listed = list()?;
        let mut owners = self.owners.lock();
        let Some(writes) = owners.get_mut(owner) else { return Ok(Some(listed)) };
        let still_there = |uid: &str| listed.iter().any(|object| *object.meta().uid == *uid);
        let hidden = |uid: &str, written: Written| match written {
            Written::At(at) => at > revision,
            Written::Deleted => still_there(uid),
        };
        writes.awaited = writes.objects.iter().any(|(uid, written)| hidden(uid, *written));
        Ok((!writes.awaited).then_some(listed))
    }

    /// Whether a change is the work of somebody else, or something that is waited for.
    pub fn is_news(&self, owner: &K, event: &Event) -> bool {
        let mut owners = self.owners.lock();
        let Some(writes) = owners.get_mut(owner) else { return true };
        let meta = event.object().meta();
        let own = match event {
            Event::Deleted { .. } => writes.objects.remove(&meta.uid) == Some(Written::Deleted),
            _ => match writes.objects.get(&meta.uid) {
                Some(Written::At(at)) => meta.revision() <= *at,
                Some(Written::Deleted) => true,
                None => false,
            },
        };
        !own || writes.awaited
    }

    /// Whether somebody waits for the cache to show what was written for the owner.
    pub fn is_awaited(&self, owner: &K) -> bool {
        self.owners.lock().get(owner).is_some_and(|writes| writes.awaited)
    }

    fn note(&self, owner: &K, uid: &str, written: Written) {
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
    use crate::source::{Listed, Selection, Source, WatchItem};
    use crate::{ClientError, Clock, Informers, Key, Kind, Metadata, Rng, Runtime};

    /// Is never asked: the cache stays as it is.
    struct Silent;

    impl Source for Silent {
        fn list<'a>(&'a self, _: &'a Kind, _: &'a Selection) -> BoxFuture<'a, Result<Listed, ClientError>> {
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

    fn writes() -> (OwnWrites<Key>, Key) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let informers = Informers::new(Arc::new(Silent), Runtime { clock, rng: Rng::seeded(1) });
        (OwnWrites::new(&informers.of::<ConfigMap>()), Key::namespaced("shop", "web"))
    }

    fn cached(objects: &[Object]) -> Result<Vec<Cached<ConfigMap>>, DecodeError> {
        objects.iter().cloned().map(Cached::new).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_not_looked_at_before_the_cache_shows_what_was_written_for_it() {
        let (writes, owner) = writes();
        let shown =
            |objects: &[Object]| writes.once_shown(&owner, || cached(objects)).expect("readable").is_some();
        assert!(shown(&[]));
        writes.wrote(&owner, &object("a", "7"));
        assert!(!shown(&[]), "the cache is at version 0");
        let other = Key::namespaced("shop", "db");
        assert!(writes.once_shown(&other, || cached(&[])).expect("readable").is_some());
        writes.forget(&owner);
        writes.deleted(&owner, "b");
        assert!(!shown(&[object("b", "3")]) && writes.is_awaited(&owner));
        assert!(shown(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_no_news_if_it_is_ones_own_write_coming_back() {
        let (writes, owner) = writes();
        writes.wrote(&owner, &object("a", "7"));
        let added = |version| Event::Added { object: object("a", version), initial: false };
        assert!(!writes.is_news(&owner, &added("7")) && writes.is_news(&owner, &added("8")));
        writes.deleted(&owner, "b");
        let gone = |uid| Event::Deleted { last: object(uid, "9"), missed: false };
        assert!(!writes.is_news(&owner, &gone("b")) && writes.is_news(&owner, &gone("c")));
    }
}
