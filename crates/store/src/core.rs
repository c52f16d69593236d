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
use crate::watch::Trigger;
use crate::watcher_group::{PendingWakes, Subscription, WatcherGroups};
use crate::{Error, Event, EventKind, Key, ListOptions, Page, Range, Record, Resource, Revision};

/// The revision of an empty store. A list must never show revision 0, which clients interpret as "any".
pub(crate) const EMPTY: Revision = 1;

/// How often the revision is recorded for compaction by age: 5 minutes of history are 30 marks.
const MARK_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Core {
    state: RwLock<State>,
}

pub(crate) struct State {
    limits: Limits,
    pub(crate) revision: Revision,
    compacted: Revision,
    resource_states: Vec<ResourceState>,
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
pub(crate) struct ResourceState {
    pub(crate) index: Index,
    pub(crate) history: History,
    groups: WatcherGroups,
    /// The paths of the records whose values could not be decrypted.
    sealed: BTreeSet<Arc<str>>,
}

/// A new watcher's registration.
pub(crate) struct Registration {
    pub(crate) resource_index: usize,
    pub(crate) cursor: u64,
    pub(crate) subscription: Subscription,
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
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, &mut PendingWakes) -> T) -> T {
        let mut wakes = PendingWakes::default();
        let result = change(&mut self.state.write(), &mut wakes);
        wakes.wake();
        result
    }

    pub(crate) fn get(&self, key: &Key, at: Option<Revision>) -> Result<Option<Arc<Record>>, Error> {
        let state = self.read();
        let resource_state = state.resource_state(&key.resource);
        let now = resource_state.and_then(|resource_state| resource_state.index.get(&key.path));
        let Some(at) = at else { return Ok(now.cloned()) };
        state.check_readable(resource_state, at)?;
        Ok(resource_state.and_then(|resource_state| resource_state.history.rewind(&key.path, now, at)))
    }

    pub(crate) async fn list(&self, range: &Range, options: &ListOptions) -> Result<Page, Error> {
        let (mut index, undo, revision) = self.read().snapshot(range, options)?;
        undo.iter().rev().for_each(|event| index.undo(event));
        Ok(index.page(range, options, revision).await)
    }

    /// Lists the records that could not be decrypted.
    pub(crate) fn sealed(&self) -> Vec<Arc<Record>> {
        let state = self.read();
        let of = |resource_state: &ResourceState| -> Vec<_> {
            resource_state.sealed.iter().filter_map(|path| resource_state.index.get(path).cloned()).collect()
        };
        state.resource_states.iter().flat_map(of).collect()
    }

    /// Returns whether a resource has records that could not be decrypted.
    pub(crate) fn has_sealed(&self, resource: &Resource) -> bool {
        self.read().resource_state(resource).is_some_and(|resource_state| !resource_state.sealed.is_empty())
    }

    /// Replaces a sealed record with the decrypted one, unless it has changed in the meantime. It is the same record,
    /// so there is no event.
    pub(crate) fn unseal(&self, sealed: &Arc<Record>, opened: &Arc<Record>) {
        let mut state = self.state.write();
        let id = state.resource_index(&sealed.key.resource);
        let resource_state = &mut state.resource_states[id];
        if resource_state.index.get(&sealed.key.path).is_some_and(|current| Arc::ptr_eq(current, sealed)) {
            resource_state.index.insert(opened.clone());
            resource_state.track_sealed(opened);
        }
    }

    pub(crate) fn count(&self, range: &Range) -> usize {
        let index =
            self.read().resource_state(&range.resource).map(|resource_state| resource_state.index.clone());
        index.map_or(0, |index| index.count(range))
    }

    pub(crate) fn add_watcher(
        &self,
        range: &Range,
        trigger: Option<&Trigger>,
        from: Revision,
    ) -> Result<Registration, Error> {
        let mut state = self.state.write();
        let id = state.resource_index(&range.resource);
        state.check_readable(state.resource_states.get(id), from)?;
        let ResourceState { history, groups, .. } = &mut state.resource_states[id];
        let cursor = history.after(from);
        let subscription = groups.add(range, trigger, history, cursor);
        Ok(Registration { resource_index: id, cursor, subscription })
    }

    pub(crate) fn remove_watcher(&self, registration: &Registration) {
        self.state.write().resource_states[registration.resource_index]
            .groups
            .remove(&registration.subscription);
    }

    pub(crate) fn compact(&self, revision: Revision) -> Result<(), Error> {
        // Free the forgotten events after the lock is released.
        let _forgotten = self.change(|state, wakes| {
            let newest = state.revision;
            if revision > newest {
                return Err(Error::Future { requested: revision, newest });
            }
            Ok(state.compact(revision, wakes))
        })?;
        Ok(())
    }

    /// Records the time, and forgets history that exceeds the age limit.
    pub(crate) fn age(&self, now: Timestamp) {
        let _forgotten =
            self.change(|state, wakes| state.age(now).map(|revision| state.compact(revision, wakes)));
    }

    /// Marks the state as final. Watchers are notified once they have read everything.
    pub(crate) fn close(&self) {
        self.change(|state, wakes| {
            state.closed = true;
            state
                .resource_states
                .iter()
                .flat_map(|resource_state| resource_state.groups.all())
                .for_each(|group| wakes.add(group));
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
            resource_states: Vec::new(),
            by_resource: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            marks: VecDeque::new(),
            history_bytes: 0,
            closed: false,
        }
    }

    /// Creates the state of another store with the same records, and no history.
    pub(crate) fn fork(&self) -> Self {
        let resource_states = self.resource_states.iter().map(ResourceState::fork).collect();
        let (by_resource, deadlines) = (self.by_resource.clone(), self.deadlines.clone());
        let mut fork = Self { resource_states, by_resource, deadlines, ..Self::new(self.limits) };
        fork.start_at(self.revision);
        fork
    }

    /// Loads a record during recovery, replacing an older one.
    pub(crate) fn load(&mut self, record: Arc<Record>) {
        let id = self.resource_index(&record.key.resource);
        let (key, expires) = (record.key.clone(), record.expires);
        self.resource_states[id].track_sealed(&record);
        let replaced = self.resource_states[id].index.insert(record);
        self.update_deadline(&key, replaced.and_then(|record| record.expires), expires);
    }

    /// Removes a record during recovery.
    pub(crate) fn unload(&mut self, key: &Key) {
        let id = self.resource_index(&key.resource);
        let removed = self.resource_states[id].index.remove(&key.path);
        self.resource_states[id].sealed.remove(&key.path);
        self.update_deadline(key, removed.and_then(|record| record.expires), None);
    }

    /// Declares the loaded records the state at `revision`. Earlier history is unknown.
    pub(crate) fn start_at(&mut self, revision: Revision) {
        if revision > EMPTY {
            self.revision = revision;
            self.compact(revision, &mut PendingWakes::default());
        }
    }

    pub(crate) fn resource_state(&self, resource: &Resource) -> Option<&ResourceState> {
        self.by_resource.get(resource).map(|id| &self.resource_states[*id])
    }

    pub(crate) fn resource_state_at(&self, id: usize) -> &ResourceState {
        &self.resource_states[id]
    }

    pub(crate) fn record(&self, key: &Key) -> Option<&Arc<Record>> {
        self.resource_state(&key.resource)?.index.get(&key.path)
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
        (
            self.revision,
            self.resource_states.iter().map(|resource_state| resource_state.index.clone()).collect(),
        )
    }

    /// Makes a change visible. Changes are published in revision order. All changes of one revision are published
    /// under one lock.
    pub(crate) fn publish(&mut self, event: Event, wakes: &mut PendingWakes) {
        debug_assert!(event.revision() >= self.revision, "changes are published in order");
        self.revision = event.revision();
        let previous_deadline = event.previous.as_ref().and_then(|record| record.expires);
        self.update_deadline(&event.record.key, previous_deadline, event.record.expires);
        let id = self.resource_index(&event.record.key.resource);
        let resource_state = &mut self.resource_states[id];
        resource_state.index.apply(&event);
        match event.kind {
            EventKind::Deleted => _ = resource_state.sealed.remove(&event.record.key.path),
            EventKind::Created | EventKind::Updated => resource_state.track_sealed(&event.record),
        }
        resource_state.groups.appended(&event, &resource_state.history, wakes);
        self.history_bytes -= resource_state.history.bytes();
        resource_state.history.push(Arc::new(event));
        while resource_state.history.exceeds(&self.limits) {
            resource_state.remove_oldest();
        }
        self.history_bytes += resource_state.history.bytes();
        self.enforce_total_limit();
    }

    /// Records that nothing has changed up to `revision`.
    pub(crate) fn advance(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Replaces all records with those of a newer state whose history is unknown. Watchers have to start again. Returns
    /// the history, for the caller to free.
    pub(crate) fn replace(&mut self, newer: Self, wakes: &mut PendingWakes) -> Vec<Arc<Event>> {
        debug_assert!(newer.revision >= self.revision, "a newer state replaces an older one");
        let Self { revision, resource_states, by_resource, deadlines, .. } = newer;
        let mut loaded: Vec<Option<ResourceState>> = resource_states.into_iter().map(Some).collect();
        let mut ids: BTreeMap<Resource, usize> = by_resource;
        for resource in self.by_resource.keys().cloned().collect::<Vec<_>>() {
            ids.entry(resource).or_insert(usize::MAX);
        }
        let mut forgotten = Vec::new();
        for (resource, at) in ids {
            let loaded = loaded.get_mut(at).and_then(Option::take);
            let (index, sealed) = loaded.map(|loaded| (loaded.index, loaded.sealed)).unwrap_or_default();
            let id = self.resource_index(&resource);
            let resource_state = &mut self.resource_states[id];
            (resource_state.index, resource_state.sealed) = (index, sealed);
            forgotten.extend(resource_state.cut(revision));
            resource_state.groups.all().for_each(|group| wakes.add(group));
        }
        (self.deadlines, self.history_bytes) = (deadlines, 0);
        self.compacted = self.compacted.max(revision);
        self.revision = revision;
        forgotten
    }

    fn update_deadline(&mut self, key: &Key, old: Option<Timestamp>, new: Option<Timestamp>) {
        if let Some(deadline) = old {
            self.deadlines.remove(&(deadline, key.clone()));
        }
        if let Some(deadline) = new {
            self.deadlines.insert((deadline, key.clone()));
        }
    }

    /// Shrinks the largest history while all histories together exceed the limit.
    fn enforce_total_limit(&mut self) {
        while self.history_bytes > self.limits.total_bytes {
            let Some(largest) =
                self.resource_states.iter_mut().max_by_key(|resource_state| resource_state.history.bytes())
            else {
                return;
            };
            self.history_bytes -= largest.history.bytes();
            largest.remove_oldest();
            self.history_bytes += largest.history.bytes();
        }
    }

    /// Forgets every event up to and including `revision`. Returns them for the caller to free.
    fn compact(&mut self, revision: Revision, wakes: &mut PendingWakes) -> Vec<Arc<Event>> {
        self.compacted = self.compacted.max(revision);
        let mut forgotten = Vec::new();
        for resource_state in &mut self.resource_states {
            let before = resource_state.history.bytes();
            while resource_state.history.oldest().is_some_and(|oldest| oldest <= revision) {
                forgotten.extend(resource_state.remove_oldest());
            }
            resource_state.history.raise_floor(revision);
            self.history_bytes -= before - resource_state.history.bytes();
            resource_state.groups.all().for_each(|group| wakes.add(group));
        }
        forgotten
    }

    /// Records the time. Returns the revision up to which history is now too old.
    fn age(&mut self, now: Timestamp) -> Option<Revision> {
        let is_time =
            |(marked, _): &(Timestamp, Revision)| now.duration_since(*marked) >= as_signed(MARK_INTERVAL);
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
        let resource_state = self.resource_state(&range.resource);
        let at = options.at.unwrap_or(self.revision);
        if options.at.is_some() {
            self.check_readable(resource_state, at)?;
        }
        let Some(resource_state) = resource_state else { return Ok((Index::default(), Vec::new(), at)) };
        let later = resource_state.history.since(resource_state.history.after(at));
        let undo = later.filter(|event| range.has_path(&event.record.key.path)).cloned().collect();
        Ok((resource_state.index.clone(), undo, at))
    }

    fn check_readable(&self, resource_state: Option<&ResourceState>, at: Revision) -> Result<(), Error> {
        let oldest = resource_state.map_or(self.compacted, |resource_state| resource_state.history.floor());
        if at > self.revision {
            return Err(Error::Future { requested: at, newest: self.revision });
        }
        if at < oldest {
            return Err(Error::Compacted { requested: at, oldest });
        }
        Ok(())
    }

    fn resource_index(&mut self, resource: &Resource) -> usize {
        if let Some(id) = self.by_resource.get(resource) {
            return *id;
        }
        let history = History::new(self.compacted);
        let (index, groups, sealed) = Default::default();
        self.resource_states.push(ResourceState { index, history, groups, sealed });
        self.by_resource.insert(resource.clone(), self.resource_states.len() - 1);
        self.resource_states.len() - 1
    }
}

impl ResourceState {
    fn fork(&self) -> Self {
        let (history, groups) = Default::default();
        Self { index: self.index.clone(), sealed: self.sealed.clone(), history, groups }
    }

    fn track_sealed(&mut self, record: &Record) {
        match record.unreadable() {
            Some(_) => _ = self.sealed.insert(record.key.path.clone()),
            None => _ = self.sealed.remove(&record.key.path),
        }
    }

    /// Forgets all history, and cuts off every watcher: what changed up to `revision` is unknown.
    fn cut(&mut self, revision: Revision) -> Vec<Arc<Event>> {
        let sequence = self.history.end();
        let forgotten = self.history.cut(revision);
        self.groups.cut(sequence);
        forgotten
    }

    fn remove_oldest(&mut self) -> Option<Arc<Event>> {
        let sequence = self.history.start();
        let event = self.history.pop()?;
        self.groups.forgotten(&event, sequence);
        Some(event)
    }
}

fn as_signed(duration: Duration) -> jiff::SignedDuration {
    duration.try_into().unwrap_or(jiff::SignedDuration::MAX)
}
