//! Orders a merged list: items of the patch in the patch's order, the others in their existing order, and items keep
//! their relative order on the server where both orders allow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::Value;

use super::PatchError;
use super::strategic::{bad_type, no_merge_key};

/// A list item and its key.
pub(super) struct Keyed {
    id: Value,
    item: Value,
}

impl Keyed {
    /// Takes an object's key from a field, which each must have.
    pub(super) fn of(items: Vec<Value>, key: &str) -> Result<Vec<Self>, PatchError> {
        items
            .into_iter()
            .map(|item| {
                let object = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", &item))?;
                let id = object.get(key).ok_or_else(|| no_merge_key(object, key))?.clone();
                Ok(Self { id, item })
            })
            .collect()
    }

    /// Uses each scalar as its own key.
    pub(super) fn scalars(items: Vec<Value>) -> Vec<Self> {
        items.into_iter().map(|item| Self { id: item.clone(), item }).collect()
    }
}

/// Returns the keys of a list's items, in order; skips items without the key.
pub(super) fn keys(items: &[Value], key: &str) -> Vec<Value> {
    items.iter().filter_map(|item| item.get(key).cloned()).collect()
}

/// The indexes of a list's items by key; the first of several wins. Lists may be as long as a body allows, so there
/// are no linear searches.
pub(super) struct ItemIndexes(BTreeMap<String, usize>);

impl ItemIndexes {
    pub(super) fn of<'v>(ids: impl Iterator<Item = &'v Value>) -> Self {
        let mut places = BTreeMap::new();
        for (at, id) in ids.enumerate() {
            places.entry(id.to_string()).or_insert(at);
        }
        Self(places)
    }

    pub(super) fn find(&self, id: &Value) -> Option<usize> {
        self.0.get(&id.to_string()).copied()
    }

    pub(super) fn has(&self, id: &Value) -> bool {
        self.find(id).is_some()
    }

    /// Adds an item; returns whether its key is new.
    pub(super) fn add(&mut self, id: &Value, at: usize) -> bool {
        match self.0.entry(id.to_string()) {
            Entry::Vacant(place) => {
                place.insert(at);
                true
            }
            Entry::Occupied(_) => false,
        }
    }
}

/// Sorts merged items by the orders of the patch and the server.
pub(super) fn sort(merged: Vec<Keyed>, patch: &[Value], server: &[Value]) -> Vec<Value> {
    let (patch, server) = (ItemIndexes::of(patch.iter()), ItemIndexes::of(server.iter()));
    let (mut of_patch, mut of_server): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|keyed| patch.has(&keyed.id));
    of_patch.sort_by_cached_key(|keyed| patch.find(&keyed.id));
    of_server.sort_by_cached_key(|keyed| server.find(&keyed.id));
    interleave(of_server, of_patch, &server)
}

/// Places patch items as early as possible, but not before items that precede them on the server.
fn interleave(of_server: Vec<Keyed>, of_patch: Vec<Keyed>, server: &ItemIndexes) -> Vec<Value> {
    let mut settled = Vec::with_capacity(of_server.len() + of_patch.len());
    let mut of_server = of_server.into_iter().peekable();
    for patched in of_patch {
        let limit = server.find(&patched.id);
        let is_before = |other: &Keyed| server.find(&other.id).zip(limit).is_some_and(|(a, b)| a < b);
        while let Some(first) = of_server.next_if(is_before) {
            settled.push(first.item);
        }
        settled.push(patched.item);
    }
    settled.extend(of_server.map(|keyed| keyed.item));
    settled
}
