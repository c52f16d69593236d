//! A cache overlaid with recent writes.
//!
//! Two claims must not get the same volume because the cache does not show the first binding yet. The API server would
//! reject the second write, but a thousand claims that all want the smallest volume would be rejected a thousand times.
//!
//! Invariant: a returned object is the cache's version or a newer one; an object missing from the cache is not
//! returned.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::object::DecodeError;
use setpoint::{Cached, Event, Informer, Key, Lister, Object, View};

/// Reads the newest known objects of a kind. Cheap to clone.
pub struct Latest<V> {
    lister: Lister<V>,
    /// Writes that the cache does not show yet: at most those in progress.
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

    /// Builds a view of a fixed lister, for tests.
    pub fn fixed(lister: Lister<V>) -> Self {
        Self { lister, written: Arc::default() }
    }

    /// Records the result of a write.
    pub fn wrote(&self, object: &Object) {
        let mut written = self.written.lock();
        if self.lister.objects().get(object.key()).is_some_and(|cached| is_newer(object, &cached)) {
            written.insert(object.key().clone(), object.clone());
        }
    }

    pub fn get(&self, key: &Key) -> Result<Option<Cached<V>>, DecodeError> {
        self.lister.get(key)?.map(|cached| self.newest(cached)).transpose()
    }

    /// Returns the newest versions of the objects that the cache has under `value` in the index `name`. They may belong
    /// elsewhere by now.
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

/// Whether `one` is a later version of the same object.
fn is_newer(one: &Object, other: &Object) -> bool {
    one.meta().uid == other.meta().uid && one.meta().revision() > other.meta().revision()
}

impl<V> Clone for Latest<V> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), written: self.written.clone() }
    }
}
