//! Caches how a change affects managed fields, for when the same change is made again.
//!
//! Ten thousand pods of one template get the same status from the same managers. The resulting ownership depends on
//! the previous entries, on the writer and on the changed fields; only the times differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_store::{InlineBytes, Part, Text};

use super::managed::ManagedFields;
use super::managers::Manager;

/// Cache capacity; a full cache is cleared, since frequent changes soon return. With the longest changes to the
/// longest entries, before and after, this is 256 × (4 + 16 + 20) KiB = 10 MiB.
const CAPACITY: usize = 256;
/// Changes with a longer text are not cached.
const MAX_CHANGE: usize = 4 << 10;
/// Nor are changes to objects with longer entries.
const MAX_ENTRIES: usize = 16 << 10;

/// The cache of changes.
#[derive(Default)]
pub struct Transitions(Mutex<BTreeMap<Key, Known>>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The addresses of the previous texts; [`Known`] keeps them alive.
    before: Vec<usize>,
    manager: Manager,
    change: String,
}

struct Known {
    _before: ManagedFields,
    after: Arc<[After]>,
}

/// An entry after the change.
#[derive(Clone)]
pub(super) struct After {
    pub(super) text: Arc<Text>,
    pub(super) time: Time,
}

/// The source of an entry's time.
#[derive(Clone, Copy)]
pub(super) enum Time {
    /// The previous entry at this index.
    Kept(usize),
    Now,
}

impl Key {
    /// Returns `None` if the change is too long to be cached.
    pub(super) fn new(before: &ManagedFields, manager: &Manager, change: String) -> Option<Self> {
        if before.length() > MAX_ENTRIES || change.len() > MAX_CHANGE {
            return None;
        }
        let address = |part: &Part| Arc::as_ptr(&part.text).addr();
        let before = before.inset().parts().iter().map(address).collect();
        Some(Self { before, manager: manager.clone(), change })
    }
}

impl Transitions {
    /// Returns the entries after a change, if it is cached.
    pub(super) fn find(&self, key: &Key, before: &ManagedFields, now: InlineBytes) -> Option<ManagedFields> {
        let after = self.0.lock().get(key)?.after.clone();
        Some(follow(&after, before, now))
    }

    pub(super) fn remember(&self, key: Key, before: ManagedFields, after: &[After]) {
        let mut known = self.0.lock();
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key, Known { _before: before, after: after.into() });
    }
}

/// Builds the entries after a change, with their times.
pub(super) fn follow(after: &[After], before: &ManagedFields, now: InlineBytes) -> ManagedFields {
    let own = |time| match time {
        Time::Kept(at) => before.inset().parts().get(at).map(|part| part.own).unwrap_or_default(),
        Time::Now => now,
    };
    ManagedFields::sorted(
        after.iter().map(|After { text, time }| Part { text: text.clone(), own: own(*time) }).collect(),
    )
}
