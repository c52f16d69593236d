//! The recent changes of one resource: a ring of events, oldest first.
//!
//! Every event has a sequence number in its ring, so a watcher is just a number. Events that leave the ring are lost to
//! watchers and to reads of past revisions. [`History::floor`] says how far the ring reaches back.
//!
//! Bounds: an event takes about [`EVENT_OVERHEAD`] bytes, and keeps the value it superseded alive. (The value it wrote
//! is either live, or counted by the event that superseded it.) A pod is about 2 KB, so [`Limits::default`] keeps the
//! last 16 MiB / 2.3 KB ≈ 7,300 updates or 16,384 creates of pods. At 2,000 changes per second, a watcher may stall for
//! 3 to 8 seconds. Four resources that busy fill the 64 MiB that all rings may use together. Beyond that, the largest
//! ring shrinks.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Event, EventKind, Record, Revision};

/// The memory of an event besides the value it keeps alive: two `Arc`s, a record, its key.
const EVENT_OVERHEAD: usize = 320;

/// How much history is kept. Events beyond any of these limits are forgotten, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events per resource.
    pub events: usize,
    /// Bytes per resource that only history keeps alive.
    pub bytes: usize,
    /// Bytes of all resources together that only history keeps alive.
    pub total_bytes: usize,
    /// The age of the oldest event, as far as memory allows. Applied at the next [`expire`](crate::Store::expire).
    pub age: std::time::Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events: 16 << 10,
            bytes: 16 << 20,
            total_bytes: 64 << 20,
            // kube-apiserver compacts etcd to the state of five minutes ago.
            age: std::time::Duration::from_secs(300),
        }
    }
}

#[derive(Default)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    /// The sequence number of the first event in the ring.
    start: u64,
    bytes: usize,
    floor: Revision,
}

impl History {
    /// Creates an empty history for a resource. Nothing before `floor` is known.
    pub(crate) fn new(floor: Revision) -> Self {
        Self { floor, ..Self::default() }
    }

    /// Returns the oldest revision the ring reaches back to: all events after it are here.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Returns the sequence number of the oldest event.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the sequence number of the next event.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.events.len() as u64
    }

    /// Returns the bytes that only this history keeps alive.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += cost(&event);
        self.events.push_back(event);
    }

    pub(crate) fn exceeds(&self, limits: &Limits) -> bool {
        self.events.len() > limits.events || self.bytes > limits.bytes
    }

    /// Forgets the oldest event.
    pub(crate) fn pop(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.start += 1;
        self.bytes -= cost(&event);
        self.floor = event.revision();
        Some(event)
    }

    /// Forgets all events, and skips a sequence number, which stands for the unknown changes up to `revision`. Returns
    /// the events.
    pub(crate) fn cut(&mut self, revision: Revision) -> Vec<Arc<Event>> {
        self.start = self.end() + 1;
        (self.bytes, self.floor) = (0, revision);
        self.events.drain(..).collect()
    }

    /// Returns the revision of the oldest event.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.events.front().map(|event| event.revision())
    }

    /// Makes reads and watches before `floor` fail from now on.
    pub(crate) fn raise_floor(&mut self, floor: Revision) {
        self.floor = self.floor.max(floor);
    }

    /// Returns the sequence number of the first event after `revision`.
    pub(crate) fn after(&self, revision: Revision) -> u64 {
        self.start + self.events.partition_point(|event| event.revision() <= revision) as u64
    }

    /// Returns the events from sequence number `from` on, or from the start of the ring if that is later.
    pub(crate) fn since(&self, from: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let skipped = from.saturating_sub(self.start).min(self.events.len() as u64) as usize;
        self.events.range(skipped..)
    }

    /// Returns the record at `path` at `revision`, given the current one.
    pub(crate) fn rewind(
        &self,
        path: &str,
        now: Option<&Arc<Record>>,
        revision: Revision,
    ) -> Option<Arc<Record>> {
        let next_change = self.since(self.after(revision)).find(|event| &*event.record.key.path == path);
        next_change.map_or_else(|| now.cloned(), |event| event.previous.clone())
    }
}

fn cost(event: &Event) -> usize {
    let superseded = event.previous.as_ref().map_or(0, |record| record.weight());
    let tombstone = if event.kind == EventKind::Deleted { event.record.weight() } else { 0 };
    EVENT_OVERHEAD + superseded + tombstone
}
