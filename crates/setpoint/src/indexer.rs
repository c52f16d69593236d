//! Stage 4: the cache. One writer, many readers.
//!
//! Invariants:
//! - Objects are kept in key order, so a list is deterministic and a namespace is a range.
//! - An index always shows exactly the objects its function assigns to a value.
//! - A reader holds the lock only while it clones the handles of its result, never while it decodes. The cost of a list
//!   depends on its result, not on the cache.
//! - The objects of one round of changes become visible at once.

mod slots;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};

use self::slots::{Slot, Slots};
use crate::{Key, Object};

/// A function that returns the values under which an index stores an object. Must be pure: it is called again to find
/// the values of an object's previous state.
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

/// A change to any number of objects. Readers wait until it is dropped.
pub(crate) struct Change<'a>(RwLockWriteGuard<'a, State>);

#[derive(Default)]
struct State {
    slots: Slots,
    /// The slots in key order. The key is shared with the object: 32 bytes per object, including the tree.
    order: Order,
    indexes: BTreeMap<&'static str, Index>,
}

type Order = BTreeMap<Key, Slot>;

struct Index {
    values: IndexFn,
    found: BTreeMap<Box<str>, Order>,
}

impl Indexer {
    /// Returns the object with this key.
    pub fn get(&self, key: &Key) -> Option<Object> {
        self.state.read().slots.get(key).cloned()
    }

    /// Returns whether there is an object with this key.
    pub fn contains(&self, key: &Key) -> bool {
        self.state.read().slots.get(key).is_some()
    }

    /// Lists all objects, or those of a namespace, in key order.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Object> {
        let state = self.state.read();
        match namespace {
            None => state.in_order(&state.order).cloned().collect(),
            Some(namespace) => state.in_namespace(namespace).cloned().collect(),
        }
    }

    /// Lists the objects whose keys are not in `keys`, which must be sorted and exist in the cache.
    pub(crate) fn without(&self, keys: &[Key]) -> Vec<Object> {
        let state = self.state.read();
        if state.slots.len() == keys.len() {
            return Vec::new();
        }
        let mut keys = keys.iter().peekable();
        let unknown = |object: &&Object| keys.next_if(|key| *key == object.key()).is_none();
        state.in_order(&state.order).filter(unknown).cloned().collect()
    }

    /// Lists the objects under `value` in the index `name`, in key order. Empty if there is no such index.
    pub fn indexed(&self, name: &str, value: &str) -> Vec<Object> {
        let state = self.state.read();
        let found = state.indexes.get(name).and_then(|index| index.found.get(value));
        found.into_iter().flat_map(|found| state.in_order(found)).cloned().collect()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.read().slots.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an index and fills it with the existing objects. Does nothing if there is an index with this name.
    pub fn add_index(&self, name: &'static str, values: IndexFn) {
        let State { slots, order, indexes } = &mut *self.state.write();
        indexes.entry(name).or_insert_with(|| {
            let mut index = Index { values, found: BTreeMap::new() };
            order.values().for_each(|slot| index.update_indexes(None, slots.at(*slot), *slot));
            index
        });
    }

    /// Starts a change. There is one writer, so reading, deciding and changing need no other lock.
    pub(crate) fn change(&self) -> Change<'_> {
        Change(self.state.write())
    }
}

/// Adds or replaces objects. An informer's own indexer is shared, so it cannot be extended.
impl Extend<Object> for Indexer {
    fn extend<I: IntoIterator<Item = Object>>(&mut self, objects: I) {
        let mut change = self.change();
        objects.into_iter().for_each(|object| _ = change.upsert(object));
    }
}

impl FromIterator<Object> for Indexer {
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let mut indexer = Self::default();
        indexer.extend(objects);
        indexer
    }
}

impl Change<'_> {
    /// Returns the object with this key, including the changes so far.
    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.0.slots.get(key)
    }

    /// Returns the object before this key. Of all objects, its name usually has the most in common with the key.
    pub(crate) fn neighbour(&self, key: &Key) -> Option<&Object> {
        let (_, slot) = self.0.order.range(..key).next_back()?;
        Some(self.0.slots.at(*slot))
    }

    /// Adds or replaces an object. Returns the one it replaces.
    pub(crate) fn upsert(&mut self, object: Object) -> Option<Object> {
        let State { slots, order, indexes } = &mut *self.0;
        let (slot, old) = slots.put(object);
        let object = slots.at(slot);
        if old.is_none() {
            order.insert(object.key().clone(), slot);
        }
        indexes.values_mut().for_each(|index| index.update_indexes(old.as_ref(), object, slot));
        old
    }

    /// Removes the object with this key.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let State { slots, order, indexes } = &mut *self.0;
        let old = slots.remove(key)?;
        order.remove(key);
        indexes.values_mut().for_each(|index| index.remove_from_indexes(&old));
        Some(old)
    }
}

impl State {
    fn in_order<'a>(&'a self, order: &'a Order) -> impl Iterator<Item = &'a Object> {
        order.values().map(|slot| self.slots.at(*slot))
    }

    fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Object> {
        let after = self.order.range(Key::namespaced(namespace, "")..);
        let within = after.take_while(move |(key, _)| key.namespace() == Some(namespace));
        within.map(|(_, slot)| self.slots.at(*slot))
    }
}

impl Index {
    fn remove_from_indexes(&mut self, object: &Object) {
        (self.values)(object).iter().for_each(|value| self.remove_entry(value, object.key()));
    }

    /// Updates the indexes for an object. Values that have not changed are left alone.
    fn update_indexes(&mut self, old: Option<&Object>, new: &Object, slot: Slot) {
        let old_values = old.map(|old| (self.values)(old)).unwrap_or_default();
        let new_values = (self.values)(new);
        for value in old_values.iter().filter(|value| !new_values.contains(value)) {
            self.remove_entry(value, new.key());
        }
        for value in new_values.into_iter().filter(|value| !old_values.contains(value)) {
            self.found.entry(value.into()).or_default().insert(new.key().clone(), slot);
        }
    }

    fn remove_entry(&mut self, value: &str, key: &Key) {
        let Some(objects) = self.found.get_mut(value) else { return };
        objects.remove(key);
        if objects.is_empty() {
            self.found.remove(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::Metadata;

    const NAMESPACES: [Option<&str>; 4] = [None, Some("a"), Some("aa"), Some("b")];

    fn object(namespace: Option<&str>, name: &str, labels: &[u8], version: usize) -> Object {
        let labels = labels.iter().map(|label| (label.to_string(), "")).collect();
        let meta = Metadata {
            name: name.into(),
            namespace: namespace.map(Into::into),
            resource_version: version.to_string().into(),
            labels,
            ..Metadata::default()
        };
        Object::with_metadata(meta, Bytes::new())
    }

    /// Indexes an object by its label keys: none, one or several.
    fn by_label() -> IndexFn {
        Arc::new(|object| object.meta().labels.iter().map(|(key, _)| key.to_owned()).collect())
    }

    fn described(objects: impl IntoIterator<Item = Object>) -> Vec<String> {
        objects.into_iter().map(|object| format!("{object:?}")).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Upsert { namespace: usize, name: u8, labels: Vec<u8> },
        Remove { namespace: usize, name: u8 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || (0..NAMESPACES.len(), 0..4u8);
        let labels = proptest::collection::vec(0..4u8, 0..3);
        prop_oneof![
            3 => (key(), labels).prop_map(|((namespace, name), labels)| Step::Upsert { namespace, name, labels }),
            1 => key().prop_map(|(namespace, name)| Step::Remove { namespace, name }),
        ]
    }

    proptest! {
        /// The model is a map that is searched completely.
        #[test]
        fn every_indexed_read_matches_a_full_scan(
            steps in proptest::collection::vec(step(), 0..80), indexed_after in 0..80usize
        ) {
            let (indexer, mut model) = (Indexer::default(), BTreeMap::<Key, Object>::new());
            for (version, step) in steps.into_iter().enumerate() {
                if version == indexed_after {
                    indexer.add_index("label", by_label());
                }
                match step {
                    Step::Upsert { namespace, name, labels } => {
                        let object = object(NAMESPACES[namespace], &name.to_string(), &labels, version);
                        let expected = model.insert(object.key().clone(), object.clone());
                        prop_assert_eq!(described(indexer.change().upsert(object)), described(expected));
                    }
                    Step::Remove { namespace, name } => {
                        let key = object(NAMESPACES[namespace], &name.to_string(), &[], 0).key().clone();
                        prop_assert_eq!(described(indexer.change().remove(&key)), described(model.remove(&key)));
                    }
                }
            }
            indexer.add_index("label", by_label());

            prop_assert_eq!(described(indexer.list(None)), described(model.values().cloned()));
            for namespace in NAMESPACES.into_iter().flatten() {
                let expected = model.values().filter(|object| object.key().namespace() == Some(namespace)).cloned();
                prop_assert_eq!(described(indexer.list(Some(namespace))), described(expected));
            }
            for label in 0..4u8 {
                let label = label.to_string();
                let expected = model.values().filter(|object| object.meta().labels.contains_key(&label)).cloned();
                prop_assert_eq!(described(indexer.indexed("label", &label)), described(expected));
            }
            for (key, object) in &model {
                prop_assert_eq!(described(indexer.get(key)), described([object.clone()]));
            }
            prop_assert_eq!(indexer.len(), model.len());
        }
    }

    #[test]
    fn objects_without_index_values_leave_no_entries() {
        let indexer = Indexer::default();
        indexer.add_index("label", by_label());
        indexer.change().upsert(object(None, "a", &[1, 2], 0));
        indexer.change().upsert(object(None, "a", &[2, 3], 1));
        assert_eq!(["1", "2", "3"].map(|label| indexer.indexed("label", label).len()), [0, 1, 1]);
        indexer.change().remove(&Key::cluster("a"));
        assert!(indexer.state.read().indexes["label"].found.is_empty());
    }

    #[test]
    fn a_missing_index_is_empty() {
        let indexer: Indexer = [object(None, "a", &[1], 0)].into_iter().collect();
        assert!(indexer.indexed("label", "1").is_empty());
    }
}
