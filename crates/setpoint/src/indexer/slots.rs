//! Objects in slots, found by their keys' hashes.
//!
//! An object keeps its slot for as long as there is one of its key, so that whatever is ordered or indexed
//! refers to slots and is not touched by a change that leaves the order alone: one look into the table. In
//! nothing that anybody sees does the order of the table show.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{Key, Object};

/// Where an object is. Four billion objects are more than a process can hold.
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

    /// The object in a slot that is not free.
    pub(super) fn at(&self, slot: Slot) -> &Object {
        self.objects[slot as usize].as_ref().expect("whatever refers to a slot goes with its object")
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.find(key).map(|slot| self.at(slot))
    }

    fn find(&self, key: &Key) -> Option<Slot> {
        self.table.find(self.hasher.hash_one(key), |slot| self.at(*slot).key() == key).copied()
    }

    /// Puts an object in the slot of its key; that slot, and the object that it replaces.
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

    /// Takes out the object of a key.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Object> {
        let slot = self.find(key)?;
        if let Ok(entry) = self.table.find_entry(self.hasher.hash_one(key), |other| *other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        self.objects[slot as usize].take()
    }
}
