//! The published state that readers and watchers see, shared by all engines.
//!
//! It is guarded by one lock. The lock is held for a lookup, for passing a bounded number of events to a watcher, or
//! for publishing a batch. It is never held while walking a list, across an await, or while waking.
//!
//! This is the innermost lock of the store: never take another lock while holding it. A thread that waits for the write
//! lock blocks new readers, so a reader that waited for another lock could wait forever. See
//! [`durable`](crate::durable) for the lock order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::history::{History, Limits};
use crate::index::Index;
use crate::interest::{Bell, Calls, Interests};
use crate::watch::Trigger;
use crate::{Error, Event, EventKind, Key, ListOptions, Page, Range, Record, Resource, Revision};

/// The revision of an empty store. A list must never show revision 0, which clients interpret as "any".
pub(crate) const EMPTY: Revision = 1;

/// How often the revision is recorded for compaction by age: 5 minutes of history are 30 marks.
const MARK_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Core {
    state: RwLock<State>,
}

pub(crate) struct State {
    limits: Limits,
    pub(crate) revision: Revision,
    compacted: Revision,
    families: Vec<Family>,
    by_resource: BTreeMap<Resource, usize>,
    /// When records expire, soonest first.
    deadlines: BTreeSet<(Timestamp, Key)>,
    /// The newest revision at points in time, oldest first.
    marks: VecDeque<(Timestamp, Revision)>,
    /// Bytes that only the histories keep alive.
    history_bytes: usize,
    pub(crate) closed: bool,
}

/// The state of one resource.
pub(crate) struct Family {
    pub(crate) index: Index,
    pub(crate) history: History,
    interests: Interests,
    /// The paths of the records whose values could not be decrypted.
    sealed: BTreeSet<Arc<str>>,
}

/// A new watcher's registration.
pub(crate) struct Seat {
    pub(crate) family: usize,
    pub(crate) cursor: u64,
    pub(crate) bell: Bell,
}

impl Core {
    pub(crate) fn new(state: State) -> Self {
        Self { state: RwLock::new(state) }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Returns the newest published revision. The lock is released on return. Use this instead of a guard wherever
    /// another lock or disk access follows.
    pub(crate) fn revision(&self) -> Revision {
        self.read().revision
    }

    /// Changes the state, then wakes the watchers that the change affects.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, &mut Calls) -> T) -> T {
        let mut calls = Calls::default();
        let result = change(&mut self.state.write(), &mut calls);
        calls.wake();
        result
    }

    pub(crate) fn get(&self, key: &Key, at: Option<Revision>) -> Result<Option<Arc<Record>>, Error> {
        let state = self.read();
        let family = state.family(&key.resource);
        let now = family.and_then(|family| family.index.get(&key.path));
        let Some(at) = at else { return Ok(now.cloned()) };
        state.check_readable(family, at)?;
        Ok(family.and_then(|family| family.history.rewind(&key.path, now, at)))
    }

    pub(crate) async fn list(&self, range: &Range, options: &ListOptions) -> Result<Page, Error> {
        let (mut index, undo, revision) = self.read().snapshot(range, options)?;
        undo.iter().rev().for_each(|event| index.undo(event));
        Ok(index.page(range, options, revision).await)
    }

    /// Lists the records that could not be decrypted.
    pub(crate) fn sealed(&self) -> Vec<Arc<Record>> {
        let state = self.read();
        let of = |family: &Family| -> Vec<_> {
            family.sealed.iter().filter_map(|path| family.index.get(path).cloned()).collect()
        };
        state.families.iter().flat_map(of).collect()
    }

    /// Returns whether a resource has records that could not be decrypted.
    pub(crate) fn has_sealed(&self, resource: &Resource) -> bool {
        self.read().family(resource).is_some_and(|family| !family.sealed.is_empty())
    }

    /// Replaces a sealed record with the decrypted one, unless it has changed in the meantime. It is the same record,
    /// so there is no event.
    pub(crate) fn unseal(&self, sealed: &Arc<Record>, opened: &Arc<Record>) {
        let mut state = self.state.write();
        let id = state.family_id(&sealed.key.resource);
        let family = &mut state.families[id];
        if family.index.get(&sealed.key.path).is_some_and(|current| Arc::ptr_eq(current, sealed)) {
            family.index.insert(opened.clone());
            family.track_sealed(opened);
        }
    }

    pub(crate) fn count(&self, range: &Range) -> usize {
        let index = self.read().family(&range.resource).map(|family| family.index.clone());
        index.map_or(0, |index| index.count(range))
    }

    pub(crate) fn sit_down(
        &self,
        range: &Range,
        trigger: Option<&Trigger>,
        from: Revision,
    ) -> Result<Seat, Error> {
        let mut state = self.state.write();
        let id = state.family_id(&range.resource);
        state.check_readable(state.families.get(id), from)?;
        let Family { history, interests, .. } = &mut state.families[id];
        let cursor = history.after(from);
        let bell = interests.add(range, trigger, history, cursor);
        Ok(Seat { family: id, cursor, bell })
    }

    pub(crate) fn stand_up(&self, seat: &Seat) {
        self.state.write().families[seat.family].interests.remove(&seat.bell);
    }

    pub(crate) fn compact(&self, revision: Revision) -> Result<(), Error> {
        // Free the forgotten events after the lock is released.
        let _forgotten = self.change(|state, calls| {
            let newest = state.revision;
            if revision > newest {
                return Err(Error::Future { requested: revision, newest });
            }
            Ok(state.compact(revision, calls))
        })?;
        Ok(())
    }

    /// Records the time, and forgets history that exceeds the age limit.
    pub(crate) fn age(&self, now: Timestamp) {
        let _forgotten =
            self.change(|state, calls| state.age(now).map(|revision| state.compact(revision, calls)));
    }

    /// Marks the state as final. Watchers are notified once they have read everything.
    pub(crate) fn close(&self) {
        self.change(|state, calls| {
            state.closed = true;
            state
                .families
                .iter()
                .flat_map(|family| family.interests.all())
                .for_each(|interest| calls.add(interest));
        });
    }
}

impl State {
    /// Creates the state of an empty store.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            revision: EMPTY,
            // Nothing happened up to the revision of an empty store, so its history is complete.
            compacted: 0,
            families: Vec::new(),
            by_resource: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            marks: VecDeque::new(),
            history_bytes: 0,
            closed: false,
        }
    }

    /// Loads a record during recovery, replacing an older one.
    pub(crate) fn load(&mut self, record: Arc<Record>) {
        let id = self.family_id(&record.key.resource);
        let (key, expires) = (record.key.clone(), record.expires);
        self.families[id].track_sealed(&record);
        let replaced = self.families[id].index.insert(record);
        self.keep_deadlines(&key, replaced.and_then(|record| record.expires), expires);
    }

    /// Removes a record during recovery.
    pub(crate) fn unload(&mut self, key: &Key) {
        let id = self.family_id(&key.resource);
        let removed = self.families[id].index.remove(&key.path);
        self.families[id].sealed.remove(&key.path);
        self.keep_deadlines(key, removed.and_then(|record| record.expires), None);
    }

    /// Declares the loaded records the state at `revision`. Earlier history is unknown.
    pub(crate) fn start_at(&mut self, revision: Revision) {
        if revision > EMPTY {
            self.revision = revision;
            self.compact(revision, &mut Calls::default());
        }
    }

    pub(crate) fn family(&self, resource: &Resource) -> Option<&Family> {
        self.by_resource.get(resource).map(|id| &self.families[*id])
    }

    pub(crate) fn family_at(&self, id: usize) -> &Family {
        &self.families[id]
    }

    pub(crate) fn record(&self, key: &Key) -> Option<&Arc<Record>> {
        self.family(&key.resource)?.index.get(&key.path)
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Returns the keys of the expired records, soonest first.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Key> {
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        due.map(|(_, key)| key.clone()).collect()
    }

    /// Returns the live records of every resource, and their revision.
    pub(crate) fn indexes(&self) -> (Revision, Vec<Index>) {
        (self.revision, self.families.iter().map(|family| family.index.clone()).collect())
    }

    /// Makes a change visible. Changes are published in revision order.
    pub(crate) fn publish(&mut self, event: Event, calls: &mut Calls) {
        debug_assert!(event.revision() > self.revision, "changes are published in order");
        self.revision = event.revision();
        let previous_deadline = event.previous.as_ref().and_then(|record| record.expires);
        self.keep_deadlines(&event.record.key, previous_deadline, event.record.expires);
        let id = self.family_id(&event.record.key.resource);
        let family = &mut self.families[id];
        family.index.apply(&event);
        match event.kind {
            EventKind::Deleted => _ = family.sealed.remove(&event.record.key.path),
            EventKind::Created | EventKind::Updated => family.track_sealed(&event.record),
        }
        family.interests.appended(&event, &family.history, calls);
        self.history_bytes -= family.history.bytes();
        family.history.push(Arc::new(event));
        while family.history.exceeds(&self.limits) {
            family.forget_oldest();
        }
        self.history_bytes += family.history.bytes();
        self.keep_within_total();
    }

    fn keep_deadlines(&mut self, key: &Key, old: Option<Timestamp>, new: Option<Timestamp>) {
        if let Some(deadline) = old {
            self.deadlines.remove(&(deadline, key.clone()));
        }
        if let Some(deadline) = new {
            self.deadlines.insert((deadline, key.clone()));
        }
    }

    /// Shrinks the largest history while all histories together exceed the limit.
    fn keep_within_total(&mut self) {
        while self.history_bytes > self.limits.total_bytes {
            let Some(largest) = self.families.iter_mut().max_by_key(|family| family.history.bytes()) else {
                return;
            };
            self.history_bytes -= largest.history.bytes();
            largest.forget_oldest();
            self.history_bytes += largest.history.bytes();
        }
    }

    /// Forgets every event up to and including `revision`. Returns them for the caller to free.
    fn compact(&mut self, revision: Revision, calls: &mut Calls) -> Vec<Arc<Event>> {
        self.compacted = self.compacted.max(revision);
        let mut forgotten = Vec::new();
        for family in &mut self.families {
            let before = family.history.bytes();
            while family.history.oldest().is_some_and(|oldest| oldest <= revision) {
                forgotten.extend(family.forget_oldest());
            }
            family.history.raise_floor(revision);
            self.history_bytes -= before - family.history.bytes();
            family.interests.all().for_each(|interest| calls.add(interest));
        }
        forgotten
    }

    /// Records the time. Returns the revision up to which history is now too old.
    fn age(&mut self, now: Timestamp) -> Option<Revision> {
        let is_time =
            |(marked, _): &(Timestamp, Revision)| now.duration_since(*marked) >= as_signed(MARK_EVERY);
        if self.marks.back().is_none_or(is_time) {
            self.marks.push_back((now, self.revision));
        }
        let age = as_signed(self.limits.age);
        let too_old = self.marks.partition_point(|(marked, _)| now.duration_since(*marked) >= age);
        self.marks.drain(..too_old).next_back().map(|(_, revision)| revision)
    }

    fn snapshot(
        &self,
        range: &Range,
        options: &ListOptions,
    ) -> Result<(Index, Vec<Arc<Event>>, Revision), Error> {
        let family = self.family(&range.resource);
        let at = options.at.unwrap_or(self.revision);
        if options.at.is_some() {
            self.check_readable(family, at)?;
        }
        let Some(family) = family else { return Ok((Index::default(), Vec::new(), at)) };
        let later = family.history.since(family.history.after(at));
        let undo = later.filter(|event| range.has_path(&event.record.key.path)).cloned().collect();
        Ok((family.index.clone(), undo, at))
    }

    fn check_readable(&self, family: Option<&Family>, at: Revision) -> Result<(), Error> {
        let oldest = family.map_or(self.compacted, |family| family.history.floor());
        if at > self.revision {
            return Err(Error::Future { requested: at, newest: self.revision });
        }
        if at < oldest {
            return Err(Error::Compacted { requested: at, oldest });
        }
        Ok(())
    }

    fn family_id(&mut self, resource: &Resource) -> usize {
        if let Some(id) = self.by_resource.get(resource) {
            return *id;
        }
        let history = History::new(self.compacted);
        let (index, interests, sealed) = Default::default();
        self.families.push(Family { index, history, interests, sealed });
        self.by_resource.insert(resource.clone(), self.families.len() - 1);
        self.families.len() - 1
    }
}

impl Family {
    fn track_sealed(&mut self, record: &Record) {
        match record.unreadable() {
            Some(_) => _ = self.sealed.insert(record.key.path.clone()),
            None => _ = self.sealed.remove(&record.key.path),
        }
    }

    fn forget_oldest(&mut self) -> Option<Arc<Event>> {
        let sequence = self.history.start();
        let event = self.history.pop()?;
        self.interests.forgotten(&event, sequence);
        Some(event)
    }
}

fn as_signed(duration: Duration) -> jiff::SignedDuration {
    duration.try_into().unwrap_or(jiff::SignedDuration::MAX)
}
