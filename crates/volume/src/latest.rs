//! A cache, with what was written since laid over it.
//!
//! Two claims must not get one volume because the cache does not show yet that the first one has it. The API
//! server would refuse the second write, but a thousand claims that all want the smallest volume would be
//! refused a thousand times.
//!
//! What always holds: an object shown is the cache's or a newer version of it, and one that the cache does not
//! have is not shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::object::DecodeError;
use setpoint::{Cached, Event, Informer, Key, Lister, Object, View};

/// Reads a kind's newest known objects. Cheap to clone.
pub struct Latest<V> {
    lister: Lister<V>,
    /// What the cache has yet to show: at most the writes under way.
    written: Arc<Mutex<BTreeMap<Key, Object>>>,
}

impl<V: View> Latest<V> {
    pub fn of(informer: &Informer) -> Self {
        let written: Arc<Mutex<BTreeMap<Key, Object>>> = Arc::default();
        let shown = written.clone();
        informer.add_handler(move |event: &Event| {
            let (object, mut written) = (event.object(), shown.lock());
            let gone = matches!(event, Event::Deleted { .. });
            if written.get(object.key()).is_some_and(|own| gone || !is_newer(own, object)) {
                written.remove(object.key());
            }
        });
        Self { lister: informer.lister(), written }
    }

    /// The objects of a lister and no others: for the tests of what reads them.
    pub fn fixed(lister: Lister<V>) -> Self {
        Self { lister, written: Arc::default() }
    }

    /// What the API server made of an object that it was given.
    pub fn wrote(&self, object: &Object) {
        let mut written = self.written.lock();
        if self.lister.objects().get(object.key()).is_some_and(|cached| is_newer(object, &cached)) {
            written.insert(object.key().clone(), object.clone());
        }
    }

    pub fn get(&self, key: &Key) -> Result<Option<Cached<V>>, DecodeError> {
        self.lister.get(key)?.map(|cached| self.newest(cached)).transpose()
    }

    /// The newest versions of what the cache files under `value` in the index `name`: they may belong elsewhere
    /// by now.
    pub fn indexed(&self, name: &str, value: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        self.lister.indexed(name, value)?.into_iter().map(|cached| self.newest(cached)).collect()
    }

    fn newest(&self, cached: Cached<V>) -> Result<Cached<V>, DecodeError> {
        match self.written.lock().get(cached.key()).filter(|own| is_newer(own, cached.object())) {
            Some(own) => Cached::new(own.clone()),
            None => Ok(cached),
        }
    }
}

/// Whether one is a later version of the same object.
fn is_newer(one: &Object, other: &Object) -> bool {
    one.meta().uid == other.meta().uid && one.meta().revision() > other.meta().revision()
}

impl<V> Clone for Latest<V> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), written: self.written.clone() }
    }
}
