//! Which keys wait, which are worked on, which are delayed: the queue without its lock and wake-ups.
//!
//! A key has an entry as long as one of these is true of it:
//!
//! ```text
//!             add                    take                     done
//!   (no entry) ──► dirty, in `ready` ────► processing ──────────────► (no entry)
//!                                              │ add          ▲
//!                                              ▼              │ done: back to `ready`
//!                                       processing, dirty ────┘
//!   due: in `delayed` until its time comes, whatever else is true; then it is added
//! ```
//!
//! Entries are found through a table of their slots, so that adding and finishing a key hash it once
//! each and taking it does not hash it at all. Nothing iterates the table, so its order is nobody's
//! business. A slot is made free and used again in place: moving an entry costs more than all the rest.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry as Slot;
use hashbrown::{DefaultHashBuilder, HashTable};
use setpoint_clock::Instant;

use super::timing::Timing;
use crate::reconcile::WorkKey;

/// How many entries are as many as the keys that wait, are worked on or are delayed: at most one per
/// object that a controller watches, which its caches hold anyway.
pub(super) struct State<K> {
    entries: Vec<Entry<K>>,
    free: Vec<usize>,
    table: HashTable<usize>,
    hasher: DefaultHashBuilder,
    ready: VecDeque<usize>,
    /// By time, then by the order in which the delays were asked for.
    delayed: BTreeSet<(Instant, u64, usize)>,
    delays: u64,
    processing: usize,
    stopping: bool,
    /// A waiting taker is watching the clock for the earliest delay.
    pub(super) timekeeper: bool,
    pub(super) timing: Timing,
}

struct Entry<K> {
    /// `None`: the slot is free, and nothing below is true.
    key: Option<K>,
    hash: u64,
    /// Wants to be worked on: in `ready`, or, while `processing`, once that is done.
    dirty: bool,
    processing: bool,
    due: Option<(Instant, u64)>,
    /// For the metrics, and only while somebody observes them.
    added_at: Option<Instant>,
    started_at: Option<Instant>,
}

/// What a queue knows about a key at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) queued: bool,
    pub(super) processing: bool,
    pub(super) due: Option<Instant>,
}

impl<K: WorkKey> State<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            delays: 0,
            processing: 0,
            stopping: false,
            timekeeper: false,
            timing: Timing::default(),
        }
    }

    /// Whether the key became ready, so that somebody should be woken. `now` is only read while
    /// somebody observes the metrics.
    pub(super) fn add(&mut self, key: K, now: impl FnOnce() -> Instant) -> bool {
        if self.stopping {
            return false;
        }
        let slot = self.slot_of(key);
        self.mark_dirty(slot, now)
    }

    /// Adds the key at `due`. Whether this is now the earliest delay of all.
    pub(super) fn delay(&mut self, key: K, due: Instant) -> bool {
        if self.stopping {
            return false;
        }
        let slot = self.slot_of(key);
        match self.entries[slot].due {
            Some((earlier, _)) if earlier <= due => return false,
            Some((later, order)) => self.delayed.remove(&(later, order, slot)),
            None => false,
        };
        self.delays += 1;
        self.entries[slot].due = Some((due, self.delays));
        self.delayed.insert((due, self.delays, slot));
        self.earliest() == Some(due)
    }

    /// Takes back the delay of a key; whether it had one.
    pub(super) fn cancel_delay(&mut self, key: &K) -> bool {
        let Some(slot) = self.find(key) else { return false };
        let Some((due, order)) = self.entries[slot].due.take() else { return false };
        self.delayed.remove(&(due, order, slot));
        self.remove_if_idle(slot);
        true
    }

    /// Adds the keys whose time has come, in the order of their times; how many became ready.
    pub(super) fn promote(&mut self, now: Instant) -> usize {
        let mut promoted = 0;
        while let Some(&(due, order, slot)) = self.delayed.first().filter(|(due, ..)| *due <= now) {
            self.delayed.remove(&(due, order, slot));
            self.entries[slot].due = None;
            promoted += usize::from(self.mark_dirty(slot, || now));
        }
        promoted
    }

    pub(super) fn take(&mut self, now: impl FnOnce() -> Instant) -> Option<K> {
        let slot = self.ready.pop_front()?;
        let entry = &mut self.entries[slot];
        entry.dirty = false;
        entry.processing = true;
        self.processing += 1;
        if self.timing.observed {
            let now = now();
            entry.started_at = Some(now);
            self.timing.waited(entry.added_at.take(), now);
        }
        entry.key.clone()
    }

    /// Whether the key became ready again.
    pub(super) fn done(&mut self, key: &K, now: impl FnOnce() -> Instant) -> bool {
        let hash = self.hasher.hash_one(key);
        let Ok(found) = self.table.find_entry(hash, |slot| self.entries[*slot].holds(key)) else {
            return false;
        };
        let slot = *found.get();
        let entry = &mut self.entries[slot];
        if !std::mem::take(&mut entry.processing) {
            return false;
        }
        self.processing -= 1;
        if let Some(started) = entry.started_at.take() {
            self.timing.worked(started, now());
        }
        if entry.dirty {
            self.ready.push_back(slot);
        } else if entry.due.is_none() {
            found.remove();
            entry.key = None;
            self.free.push(slot);
        }
        entry.dirty
    }

    pub(super) fn count_retry(&mut self) {
        self.timing.retries += u64::from(!self.stopping);
    }

    /// Nothing is added from here on; what is delayed is dropped, what is ready is still handed out.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        for (_, _, slot) in std::mem::take(&mut self.delayed) {
            self.entries[slot].due = None;
            self.remove_if_idle(slot);
        }
    }

    /// Drops what is ready; a key added while it is worked on is not worked on again.
    pub(super) fn drop_ready(&mut self) {
        for slot in std::mem::take(&mut self.ready) {
            self.entries[slot].dirty = false;
            self.remove_if_idle(slot);
        }
        for entry in &mut self.entries {
            entry.dirty = false;
        }
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping
    }

    /// Nothing is ready and nothing is worked on.
    pub(super) fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.processing == 0
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn processing(&self) -> usize {
        self.processing
    }

    /// The time of the earliest delay.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, ..)| *due)
    }

    /// When the work under way began, in no order.
    pub(super) fn started(&self) -> impl Iterator<Item = Instant> {
        self.entries.iter().filter_map(|entry| entry.started_at)
    }

    pub(super) fn standing(&self, key: &K) -> Standing {
        self.find(key).map_or_else(Standing::default, |slot| self.entries[slot].standing())
    }

    pub(super) fn standings(&self) -> Vec<(K, Standing)> {
        self.entries.iter().filter_map(|entry| Some((entry.key.clone()?, entry.standing()))).collect()
    }

    fn find(&self, key: &K) -> Option<usize> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |slot| self.entries[*slot].holds(key)).copied()
    }

    /// The slot of the key, made if there is none.
    fn slot_of(&mut self, key: K) -> usize {
        let hash = self.hasher.hash_one(&key);
        let Self { entries, free, table, .. } = self;
        match table.entry(hash, |slot| entries[*slot].holds(&key), |slot| entries[*slot].hash) {
            Slot::Occupied(occupied) => *occupied.get(),
            Slot::Vacant(vacant) => {
                let slot = free.pop().unwrap_or(entries.len());
                vacant.insert(slot);
                match entries.get_mut(slot) {
                    Some(entry) => (entry.key, entry.hash) = (Some(key), hash),
                    None => entries.push(Entry::new(key, hash)),
                }
                slot
            }
        }
    }

    fn mark_dirty(&mut self, slot: usize, now: impl FnOnce() -> Instant) -> bool {
        let entry = &mut self.entries[slot];
        if std::mem::replace(&mut entry.dirty, true) {
            return false;
        }
        self.timing.adds += 1;
        if self.timing.observed {
            entry.added_at = Some(now());
        }
        if entry.processing {
            return false;
        }
        self.ready.push_back(slot);
        true
    }

    fn remove_if_idle(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        if entry.dirty || entry.processing || entry.due.is_some() {
            return;
        }
        entry.key = None;
        self.free.push(slot);
        if let Ok(occupied) = self.table.find_entry(entry.hash, |candidate| *candidate == slot) {
            occupied.remove();
        }
    }
}

impl<K: PartialEq> Entry<K> {
    fn new(key: K, hash: u64) -> Self {
        Self {
            key: Some(key),
            hash,
            dirty: false,
            processing: false,
            due: None,
            added_at: None,
            started_at: None,
        }
    }

    fn holds(&self, key: &K) -> bool {
        self.key.as_ref() == Some(key)
    }

    fn standing(&self) -> Standing {
        Standing { queued: self.dirty, processing: self.processing, due: self.due.map(|(due, _)| due) }
    }
}
