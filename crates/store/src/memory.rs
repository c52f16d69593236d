//! The in-memory engine, for tests, simulations and temporary clusters.
//!
//! A commit is visible when the call returns. There are no threads, files or waits, so the same calls in the same order
//! give the same store, byte for byte.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use setpoint_clock::Clock;

use crate::core::{Core, State};
use crate::decide::{decide, removal};
use crate::{Error, Key, Limits, ListOptions, Page, Range, Record, Revision, Store, Trigger, Watch, Write};

/// An in-memory store. Its contents are lost when it is dropped.
pub struct MemoryStore {
    core: Arc<Core>,
    clock: Clock,
}

impl MemoryStore {
    /// Creates an empty store. The clock determines when a TTL starts.
    pub fn new(clock: Clock) -> Self {
        Self::with_limits(clock, Limits::default())
    }

    pub fn with_limits(clock: Clock, limits: Limits) -> Self {
        Self { core: Arc::new(Core::new(State::new(limits))), clock }
    }

    fn commit_now(&self, write: Write) -> Result<Arc<Record>, Error> {
        self.core.change(|state, calls| {
            if state.closed {
                return Err(Error::Closed);
            }
            let current = state.record(&write.key);
            let event = decide(write, current, state.revision + 1, || self.clock.now())?;
            let record = event.record.clone();
            state.publish(event, calls);
            Ok(record)
        })
    }

    fn expire_now(&self, now: Timestamp) -> Result<usize, Error> {
        let expired = self.core.change(|state, calls| {
            if state.closed {
                return Err(Error::Closed);
            }
            let due = state.due(now);
            for key in &due {
                if let Some(record) = state.record(key) {
                    let event = removal(record, state.revision + 1);
                    state.publish(event, calls);
                }
            }
            Ok(due.len())
        })?;
        self.core.age(now);
        Ok(expired)
    }
}

impl Store for MemoryStore {
    fn revision(&self) -> Revision {
        self.core.revision()
    }

    fn compacted(&self) -> Revision {
        self.core.read().compacted()
    }

    fn get<'a>(
        &'a self,
        key: &'a Key,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, Error>> {
        async move { self.core.get(key, at) }.boxed()
    }

    fn list<'a>(&'a self, range: &'a Range, options: ListOptions) -> BoxFuture<'a, Result<Page, Error>> {
        async move { self.core.list(range, &options).await }.boxed()
    }

    fn count<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<usize, Error>> {
        async move { Ok(self.core.count(range)) }.boxed()
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        async move { self.commit_now(write) }.boxed()
    }

    fn watch_by(&self, range: Range, trigger: Option<Trigger>, from: Revision) -> Result<Watch, Error> {
        Watch::new(self.core.clone(), range, trigger.as_ref(), from)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.core.compact(revision) }.boxed()
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, Error>> {
        async move { self.expire_now(now) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move { self.core.close() }.boxed()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.core.close();
    }
}
