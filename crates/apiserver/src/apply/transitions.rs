//! What became of managed fields when a change was made to them, for when it is made again.
//!
//! Ten thousand pods of one template get the same status from the same managers. Who owns what afterwards depends
//! on the entries before, on the writer and on the fields that changed; only the times differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_store::{Own, Part, Text};

use super::managed::ManagedFields;
use super::managers::Manager;

/// As many changes are remembered, and then none: what is made often comes back at once. With the longest changes of the
/// longest entries, before and after, that is 256 × (4 + 16 + 20) KiB = 10 MiB.
const REMEMBERED: usize = 256;
/// Changes of more fields than this many bytes describe are not remembered.
const LONGEST_CHANGE: usize = 4 << 10;
/// Nor are changes of objects whose entries are longer than this.
const LONGEST_ENTRIES: usize = 16 << 10;

/// The changes that were made before.
#[derive(Default)]
pub struct Transitions(Mutex<BTreeMap<Key, Known>>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Where the texts before are; [`Known`] keeps them there.
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

/// Where the time of an entry comes from.
#[derive(Clone, Copy)]
pub(super) enum Time {
    /// From the entry at this place before.
    Kept(usize),
    Now,
}

impl Key {
    /// `None` if the change is too long to be remembered.
    pub(super) fn new(before: &ManagedFields, manager: &Manager, change: String) -> Option<Self> {
        if before.length() > LONGEST_ENTRIES || change.len() > LONGEST_CHANGE {
            return None;
        }
        let address = |part: &Part| Arc::as_ptr(&part.text).addr();
        let before = before.inset().parts().iter().map(address).collect();
        Some(Self { before, manager: manager.clone(), change })
    }
}

impl Transitions {
    /// The entries after a change, if it was made before.
    pub(super) fn find(&self, key: &Key, before: &ManagedFields, now: Own) -> Option<ManagedFields> {
        let after = self.0.lock().get(key)?.after.clone();
        Some(follow(&after, before, now))
    }

    pub(super) fn remember(&self, key: Key, before: ManagedFields, after: &[After]) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, Known { _before: before, after: after.into() });
    }
}

/// The entries after a change, with their times.
pub(super) fn follow(after: &[After], before: &ManagedFields, now: Own) -> ManagedFields {
    let own = |time| match time {
        Time::Kept(at) => before.inset().parts().get(at).map(|part| part.own).unwrap_or_default(),
        Time::Now => now,
    };
    ManagedFields::sorted(
        after.iter().map(|After { text, time }| Part { text: text.clone(), own: own(*time) }).collect(),
    )
}
