//! Objects in slots, found by the hash of their key.
//!
//! An object keeps its slot as long as its key exists, so the order and the indexes refer to slots. A change that
//! leaves the order alone needs only one lookup in the table. The order of the table is never visible.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{Key, Object};

/// The position of an object. Four billion objects are more than a process can hold.
pub(super) type Slot = u32;

#[derive(Default)]
pub(super) struct Slots {
    /// `None`: free.
    objects: Vec<Option<Object>>,
    free: Vec<Slot>,
    table: HashTable<Slot>,
    hasher: DefaultHashBuilder,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the object in an occupied slot.
    pub(super) fn at(&self, slot: Slot) -> &Object {
        self.objects[slot as usize].as_ref().expect("references to a slot are removed with its object")
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.find(key).map(|slot| self.at(slot))
    }

    fn find(&self, key: &Key) -> Option<Slot> {
        self.table.find(self.hasher.hash_one(key), |slot| self.at(*slot).key() == key).copied()
    }

    /// Puts an object in the slot of its key. Returns the slot and the object it replaces.
    pub(super) fn put(&mut self, object: Object) -> (Slot, Option<Object>) {
        if let Some(slot) = self.find(object.key()) {
            return (slot, self.objects[slot as usize].replace(object));
        }
        let hash = self.hasher.hash_one(object.key());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.objects.push(None);
            (self.objects.len() - 1) as Slot
        });
        self.objects[slot as usize] = Some(object);
        let Self { objects, table, hasher, .. } = self;
        table.insert_unique(hash, slot, |slot| {
            hasher.hash_one(objects[*slot as usize].as_ref().map(Object::key).expect("in the table"))
        });
        (slot, None)
    }

    /// Removes the object with this key.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Object> {
        let slot = self.find(key)?;
        if let Ok(entry) = self.table.find_entry(self.hasher.hash_one(key), |other| *other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        self.objects[slot as usize].take()
    }
}
