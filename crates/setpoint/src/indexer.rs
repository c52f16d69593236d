//! Stage 4: the cache. One writer, many readers.
//!
//! What always holds:
//! - objects are found in key order, so a list is deterministic and a namespace is a range;
//! - an index shows exactly the objects that its function names, at any time a reader looks;
//! - a reader takes the lock for as long as it takes to clone the handles of its result, never while
//!   it decodes: a list costs its result, not the cache;
//! - a change of many objects becomes visible at once.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};

use crate::{Key, Object};

/// The values under which an object is found in an index. Pure: it is asked again for what an object
/// was filed under before.
pub type IndexFn = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

/// The objects of an informer, with named indexes.
///
/// ```
/// use std::sync::Arc;
/// use setpoint::{Key, Object, indexer::Indexer};
/// let raw = br#"{"metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}}}"#;
/// let object = Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// let indexer: Indexer = [object].into_iter().collect();
/// indexer.add_index("app", Arc::new(|object| object.meta().label("app").map(String::from).into_iter().collect()));
/// assert_eq!(indexer.indexed("app", "web")[0].key(), &Key::namespaced("shop", "web-1"));
/// assert!(indexer.indexed("app", "db").is_empty());
/// ```
#[derive(Default)]
pub struct Indexer {
    state: RwLock<State>,
}

/// Changes of any number of objects; readers wait until it is dropped.
pub(crate) struct Change<'a>(RwLockWriteGuard<'a, State>);

#[derive(Default)]
struct State {
    objects: BTreeSet<ByKey>,
    indexes: BTreeMap<&'static str, Index>,
}

struct Index {
    values: IndexFn,
    /// The sets hold the objects themselves: a list by index looks nothing up.
    found: BTreeMap<Box<str>, BTreeSet<ByKey>>,
}

/// An object in a set ordered by key: eight bytes an entry, where a map from keys takes forty.
struct ByKey(Object);

impl Indexer {
    /// The object of a key.
    pub fn get(&self, key: &Key) -> Option<Object> {
        self.state.read().objects.get(key).map(|entry| entry.0.clone())
    }

    /// Whether there is an object of this key.
    pub fn contains(&self, key: &Key) -> bool {
        self.state.read().objects.contains(key)
    }

    /// All objects, or those of a namespace, in key order.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Object> {
        let state = self.state.read();
        match namespace {
            None => state.objects.iter().map(|entry| entry.0.clone()).collect(),
            Some(namespace) => state.in_namespace(namespace).cloned().collect(),
        }
    }

    /// The objects found under `value` in the index `name`, in key order; none if there is no such index.
    pub fn indexed(&self, name: &str, value: &str) -> Vec<Object> {
        let state = self.state.read();
        let found = state.indexes.get(name).and_then(|index| index.found.get(value));
        found.into_iter().flatten().map(|entry| entry.0.clone()).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an index under a name and files what is already there; the same name twice is the same index.
    pub fn add_index(&self, name: &'static str, values: IndexFn) {
        let state = &mut *self.state.write();
        state.indexes.entry(name).or_insert_with(|| {
            let mut index = Index { values, found: BTreeMap::new() };
            state.objects.iter().for_each(|entry| index.file(&entry.0));
            index
        });
    }

    /// Begins a change. There is one writer: whoever reads, decides and then changes is undisturbed.
    pub(crate) fn change(&self) -> Change<'_> {
        Change(self.state.write())
    }
}

impl FromIterator<Object> for Indexer {
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let objects = objects.into_iter().map(ByKey).collect();
        Self { state: RwLock::new(State { objects, indexes: BTreeMap::new() }) }
    }
}

impl Change<'_> {
    /// The object of a key, as changed so far.
    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.0.objects.get(key).map(|entry| &entry.0)
    }

    /// Puts an object in place of the one of the same key, which it returns.
    pub(crate) fn upsert(&mut self, object: Object) -> Option<Object> {
        let State { objects, indexes } = &mut *self.0;
        let old = objects.replace(ByKey(object.clone())).map(|entry| entry.0);
        indexes.values_mut().for_each(|index| index.refile(old.as_ref(), &object));
        old
    }

    /// Takes out the object of a key.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let State { objects, indexes } = &mut *self.0;
        let old = objects.take(key)?.0;
        indexes.values_mut().for_each(|index| index.unfile(&old));
        Some(old)
    }
}

impl State {
    fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Object> {
        let first = Key::namespaced(namespace, "");
        let after = self.objects.range::<Key, _>(first..);
        after.map(|entry| &entry.0).take_while(move |object| object.key().namespace() == Some(namespace))
    }
}

impl Index {
    fn file(&mut self, object: &Object) {
        for value in (self.values)(object) {
            self.found.entry(value.into()).or_default().replace(ByKey(object.clone()));
        }
    }

    fn unfile(&mut self, object: &Object) {
        (self.values)(object).iter().for_each(|value| self.unfile_under(value, object.key()));
    }

    fn refile(&mut self, old: Option<&Object>, new: &Object) {
        let old_values = old.map(|old| (self.values)(old)).unwrap_or_default();
        let new_values = (self.values)(new);
        for value in old_values.iter().filter(|value| !new_values.contains(value)) {
            self.unfile_under(value, new.key());
        }
        for value in new_values {
            match self.found.get_mut(&*value) {
                Some(objects) => _ = objects.replace(ByKey(new.clone())),
                None => _ = self.found.insert(value.into(), BTreeSet::from([ByKey(new.clone())])),
            }
        }
    }

    fn unfile_under(&mut self, value: &str, key: &Key) {
        let Some(objects) = self.found.get_mut(value) else { return };
        objects.remove(key);
        if objects.is_empty() {
            self.found.remove(value);
        }
    }
}

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}
