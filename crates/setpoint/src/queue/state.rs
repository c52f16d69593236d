//! The keys that wait, are processed or are delayed: the queue without its lock and wake-ups.
//!
//! A key has an entry while at least one of these states applies:
//!
//! ```text
//!             add                    take                     done
//!   (no entry) ──► dirty, in `ready` ────► processing ──────────────► (no entry)
//!                                              │ add          ▲
//!                                              ▼              │ done: back to `ready`
//!                                       processing, dirty ────┘
//!   due: in `delayed` until its deadline, in addition to the states above; then it is added
//! ```
//!
//! The priority and trigger come from the add that made the key dirty. An add with a higher priority raises it and
//! moves the key. A key that is added again by its own reconcile keeps the priority it was taken with.
//!
//! Entries are found through a hash table of slots: adding and finishing a key hash it once each, taking it does not
//! hash it at all. Nothing iterates the table, so its order does not matter. Slots are freed and reused in place,
//! because moving an entry would cost more than everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::hash_table::Entry as Slot;
use hashbrown::{DefaultHashBuilder, HashTable};
use setpoint_clock::Instant;

use super::entry::{Add, Due, Entry, KeySnapshot};
use super::ready::{Priority, Ready};
use super::timing::Timing;
use super::trigger::Trigger;
use super::waiters::Waiters;
use crate::reconcile::WorkKey;

/// The number of entries is the number of keys that wait, are processed or are delayed: at most one per object that a
/// controller watches, and its caches hold those anyway.
pub(super) struct State<K> {
    entries: Vec<Entry<K>>,
    free: Vec<usize>,
    table: HashTable<usize>,
    hasher: DefaultHashBuilder,
    pub(super) ready: Ready,
    /// Ordered by time, then by the order in which the delays were requested.
    delayed: BTreeSet<(Instant, u64, usize)>,
    delays: u64,
    processing: usize,
    /// The slot that was taken last. It is usually the next to be done, which saves a lookup.
    latest: usize,
    stopping: bool,
    pub(super) waiters: Waiters,
    /// How long an added key is delayed so that further adds are merged with it.
    pub(super) window: Option<Duration>,
    /// The number of waiting keys at which the queue reports that it is full.
    pub(super) bound: Option<usize>,
    pub(super) timing: Timing,
}

impl<K: WorkKey> State<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            ready: Ready::default(),
            delayed: BTreeSet::new(),
            delays: 0,
            processing: 0,
            latest: 0,
            stopping: false,
            waiters: Waiters::default(),
            window: None,
            bound: None,
            timing: Timing::default(),
        }
    }

    /// Adds a key. Returns whether it became ready, so that a waiter should be woken. Calls `trigger` only if the key
    /// was not waiting already, and `now` only if metrics are enabled.
    #[inline]
    pub(super) fn add(
        &mut self,
        key: K,
        priority: Priority,
        trigger: impl FnOnce() -> Trigger,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        if self.stopping {
            return false;
        }
        let slot = self.slot_of(key);
        self.mark_dirty(slot, priority, trigger, now)
    }

    /// Adds a key that its own reconcile requeues immediately. Returns whether it became ready.
    pub(super) fn add_again(&mut self, key: K, add: Add, now: impl FnOnce() -> Instant) -> bool {
        if self.stopping {
            return false;
        }
        let slot = self.slot_of(key);
        let priority = add.priority.unwrap_or_else(|| self.kept_priority(slot));
        self.mark_dirty(slot, priority, || add.trigger, now)
    }

    /// Returns the priority of a key that is added without one. In a fair queue, a low priority only means that the key
    /// had not changed, which no longer holds once its reconcile asks for more.
    fn kept_priority(&self, slot: usize) -> Priority {
        let entry = &self.entries[slot];
        let kept = if entry.processing { entry.taken_with } else { Priority::Normal };
        if self.ready.strict { kept } else { kept.max(Priority::Normal) }
    }

    /// Adds the key after `delay`, unless it has an earlier delay. Returns whether this is now the earliest of all
    /// delays.
    pub(super) fn delay(&mut self, key: K, now: Instant, delay: Duration, add: Add) -> bool {
        self.set_delay(key, now, add, |known| {
            let due = now.checked_add(delay)?;
            known.is_none_or(|known| due < known.at).then_some(due)
        })
    }

    /// Adds the key once `quiet` has passed without another call, or `at_most` since the first call. Returns whether
    /// this is now the earliest of all delays.
    pub(super) fn debounce(
        &mut self,
        key: K,
        now: Instant,
        (quiet, at_most): (Duration, Duration),
        add: Add,
    ) -> bool {
        self.set_delay(key, now, add, |known| {
            let since = known.map_or(now, |known| known.since);
            let (due, latest) = (now.checked_add(quiet)?, since.checked_add(at_most));
            Some(latest.map_or(due, |latest| due.min(latest)))
        })
    }

    /// Sets the key's delay to what `choose` returns for its current one. `None` leaves it unchanged.
    fn set_delay(
        &mut self,
        key: K,
        now: Instant,
        add: Add,
        choose: impl FnOnce(Option<&Due>) -> Option<Instant>,
    ) -> bool {
        if self.stopping {
            return false;
        }
        let slot = self.slot_of(key);
        let priority = add.priority.unwrap_or_else(|| self.kept_priority(slot));
        let known = self.entries[slot].due.as_deref();
        let Some(at) = choose(known) else {
            self.remove_if_idle(slot);
            return false;
        };
        if let Some(known) = known {
            self.delayed.remove(&(known.at, known.order, slot));
        }
        self.delays += 1;
        match &mut self.entries[slot].due {
            Some(known) => {
                (known.at, known.order) = (at, self.delays);
                known.priority = known.priority.max(priority);
            }
            due @ None => {
                let trigger = add.trigger;
                *due = Some(Box::new(Due { at, order: self.delays, since: now, priority, trigger }));
            }
        }
        self.delayed.insert((at, self.delays, slot));
        self.earliest() == Some(at)
    }

    /// Cancels the delay of a key. Returns whether it had one.
    pub(super) fn cancel_delay(&mut self, key: &K) -> bool {
        let Some(slot) = self.find(key) else { return false };
        let Some(due) = self.entries[slot].due.take() else { return false };
        self.delayed.remove(&(due.at, due.order, slot));
        self.remove_if_idle(slot);
        true
    }

    /// Removes a queued or delayed key. Returns whether there was anything to remove. A reconcile in progress
    /// continues.
    pub(super) fn cancel(&mut self, key: &K) -> bool {
        let delayed = self.cancel_delay(key);
        let Some(slot) = self.find(key) else { return delayed };
        let Self { entries, ready, .. } = self;
        let entry = &mut entries[slot];
        let queued = std::mem::take(&mut entry.dirty);
        entry.added_at = None;
        if std::mem::take(&mut entry.ticket) != 0 {
            let priority = entry.priority;
            ready.leave(priority, |slot, ticket| entries[slot].ticket == ticket);
        }
        self.remove_if_idle(slot);
        delayed || queued
    }

    /// Adds the keys that are due. Returns how many became ready. Reads the clock only if keys are delayed.
    pub(super) fn catch_up(&mut self, now: impl Fn() -> Instant) -> usize {
        if self.delayed.is_empty() { 0 } else { self.promote(now()) }
    }

    /// Adds the keys that are due, in the order of their deadlines. Returns how many became ready.
    fn promote(&mut self, now: Instant) -> usize {
        let mut promoted = 0;
        while let Some(&(at, order, slot)) = self.delayed.first().filter(|(at, ..)| *at <= now) {
            self.delayed.remove(&(at, order, slot));
            let Some(due) = self.entries[slot].due.take() else { continue };
            let Due { priority, trigger, .. } = *due;
            promoted += usize::from(self.mark_dirty(slot, priority, || trigger, || now));
        }
        promoted
    }

    /// Takes the next key. Stores its cause in `trigger`, if given. The trigger is not part of the return value, so
    /// that a key is returned in registers.
    #[inline]
    pub(super) fn take(&mut self, trigger: Option<&mut Trigger>, now: impl FnOnce() -> Instant) -> Option<K> {
        let Self { ready, entries, .. } = self;
        let slot = ready.pop(|slot, ticket| entries[slot].ticket == ticket)?;
        let entry = &mut self.entries[slot];
        entry.dirty = false;
        entry.processing = true;
        entry.taken_with = entry.priority;
        entry.ticket = 0;
        self.processing += 1;
        self.latest = slot;
        if self.timing.observed {
            let now = now();
            entry.started_at = Some(now);
            self.timing.waited(entry.added_at.take(), now);
        }
        if let Some(trigger) = trigger {
            entry.trigger.move_to(trigger);
        }
        entry.key.clone()
    }

    /// Marks a key as done. Returns whether it became ready again.
    #[inline]
    pub(super) fn done(&mut self, key: &K, now: impl FnOnce() -> Instant) -> bool {
        let latest = self.entries.get(self.latest).is_some_and(|entry| entry.holds(key));
        let Some(slot) = (if latest { Some(self.latest) } else { self.find(key) }) else { return false };
        let entry = &mut self.entries[slot];
        if !std::mem::take(&mut entry.processing) {
            return false;
        }
        self.processing -= 1;
        if let Some(started) = entry.started_at.take() {
            self.timing.worked(started, now());
        }
        if !entry.dirty {
            self.remove_if_idle(slot);
            return false;
        }
        entry.ticket = self.ready.push(slot, entry.priority);
        true
    }

    pub(super) fn count_retry(&mut self) {
        self.timing.retries += u64::from(!self.stopping);
    }

    /// Rejects further adds. Drops delayed keys; ready keys are still handed out.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        for (_, _, slot) in std::mem::take(&mut self.delayed) {
            self.entries[slot].due = None;
            self.remove_if_idle(slot);
        }
    }

    /// Drops ready keys. A key added while it is being processed is not processed again.
    pub(super) fn drop_ready(&mut self) {
        self.ready.clear();
        for slot in 0..self.entries.len() {
            (self.entries[slot].dirty, self.entries[slot].ticket) = (false, 0);
            self.remove_if_idle(slot);
        }
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping
    }

    /// Returns whether no key is ready or being processed.
    pub(super) fn is_drained(&self) -> bool {
        self.ready.len() == 0 && self.processing == 0
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns whether the number of waiting keys is below the bound.
    pub(super) fn has_room(&self) -> bool {
        self.stopping || self.bound.is_none_or(|bound| self.len() < bound)
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn processing(&self) -> usize {
        self.processing
    }

    /// Returns the earliest deadline of the delayed keys.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, ..)| *due)
    }

    /// Returns when each reconcile in progress started, in no particular order.
    pub(super) fn started(&self) -> impl Iterator<Item = Instant> {
        self.entries.iter().filter_map(|entry| entry.started_at)
    }

    pub(super) fn snapshot(&self, key: &K) -> KeySnapshot {
        self.find(key).map_or_else(KeySnapshot::default, |slot| self.entries[slot].snapshot())
    }

    /// Returns the number of keys ahead of this one, or `None` if it is not waiting.
    pub(super) fn position(&self, key: &K) -> Option<usize> {
        let ticket = self.find(key).map(|slot| self.entries[slot].ticket).filter(|ticket| *ticket != 0)?;
        let mut own = self.ready.in_order().filter(|(slot, found)| self.entries[*slot].ticket == *found);
        own.position(|(_, found)| found == ticket)
    }

    /// Returns the number of positions, including gaps.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.ready.in_order().count()
    }

    /// Returns the position of every waiting key.
    pub(super) fn positions(&self) -> BTreeMap<K, usize> {
        let own = self.ready.in_order().filter(|(slot, ticket)| self.entries[*slot].ticket == *ticket);
        let keys = own.filter_map(|(slot, _)| self.entries[slot].key.clone());
        keys.enumerate().map(|(position, key)| (key, position)).collect()
    }

    pub(super) fn snapshots(&self) -> Vec<(K, KeySnapshot)> {
        self.entries.iter().filter_map(|entry| Some((entry.key.clone()?, entry.snapshot()))).collect()
    }

    fn find(&self, key: &K) -> Option<usize> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |slot| self.entries[*slot].holds(key)).copied()
    }

    /// Returns the key's slot, creating it if necessary.
    #[inline]
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

    #[inline]
    fn mark_dirty(
        &mut self,
        slot: usize,
        priority: Priority,
        trigger: impl FnOnce() -> Trigger,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let entry = &mut self.entries[slot];
        if entry.dirty {
            self.raise(slot, priority);
            return false;
        }
        (entry.dirty, entry.priority, entry.trigger) = (true, priority, trigger());
        self.timing.adds += 1;
        if self.timing.observed {
            entry.added_at = Some(now());
        }
        if entry.processing {
            return false;
        }
        entry.ticket = self.ready.push(slot, priority);
        true
    }

    /// Raises the priority of a dirty key to at least this one.
    fn raise(&mut self, slot: usize, priority: Priority) {
        let Self { entries, ready, .. } = self;
        let before = entries[slot].priority;
        if priority <= before {
            return;
        }
        entries[slot].priority = priority;
        if entries[slot].ticket != 0 {
            entries[slot].ticket = ready.push(slot, priority);
            ready.leave(before, |slot, ticket| entries[slot].ticket == ticket);
        }
    }

    #[inline]
    fn remove_if_idle(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        if entry.key.is_none() || entry.dirty || entry.processing || entry.due.is_some() {
            return;
        }
        entry.key = None;
        self.free.push(slot);
        if let Ok(occupied) = self.table.find_entry(entry.hash, |candidate| *candidate == slot) {
            occupied.remove();
        }
    }
}
