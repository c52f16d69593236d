//! What a controller has written and its cache has yet to show.
//!
//! A controller that plans on a cache which does not show its last writes makes them again: two slices
//! where one was wanted. So it notes what it writes for each owner, and looks at an owner again only
//! once the cache shows all of it.
//!
//! What always holds:
//! - a cache that has come past the newest write shows all writes, also those whose objects are gone again;
//! - a change that is nothing but the controller's own write, coming back, is no news.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use setpoint::object::DecodeError;
use setpoint::reconcile::WorkKey;
use setpoint::{Cached, Event, Informer, Object, View};

/// The writes of one controller to one kind, by the owner they were made for.
pub(crate) struct OwnWrites<K> {
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
    pub(crate) fn new(informer: &Informer) -> Self {
        Self { informer: informer.clone(), owners: Mutex::new(BTreeMap::new()) }
    }

    /// An object was created or updated; `reply` is what the API server made of it.
    pub(crate) fn wrote(&self, owner: &K, reply: &Object) {
        self.note(owner, &reply.meta().uid, Written::At(reply.meta().revision()));
    }

    /// The object of this uid was deleted.
    pub(crate) fn deleted(&self, owner: &K, uid: &str) {
        self.note(owner, uid, Written::Deleted);
    }

    /// The owner is gone, or none of the controller's business any more.
    pub(crate) fn forget(&self, owner: &K) {
        self.owners.lock().remove(owner);
    }

    /// What `list` finds in the cache, if the cache shows all that was written for the owner.
    pub(crate) fn once_shown<V: View>(
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
    pub(crate) fn is_news(&self, owner: &K, event: &Event) -> bool {
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
    pub(crate) fn is_awaited(&self, owner: &K) -> bool {
        self.owners.lock().get(owner).is_some_and(|writes| writes.awaited)
    }

    fn note(&self, owner: &K, uid: &str, written: Written) {
        let mut owners = self.owners.lock();
        owners.entry(owner.clone()).or_default().objects.insert(uid.into(), written);
    }
}
