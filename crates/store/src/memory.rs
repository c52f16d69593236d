//! The in-memory engine, for tests, simulations and temporary clusters.
//!
//! A commit is visible when the call returns. There are no threads, files or waits, so the same calls in the same order
//! give the same store, byte for byte.

use std::sync::Arc;

use jiff::Timestamp;
use setpoint_clock::Clock;

use crate::core::{Core, State};
use crate::decide::{decide, removal};
use crate::engine::Engine;
use crate::{Error, Key, Limits, ListOptions, Page, Range, Record, Revision, Write};

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

    /// Creates another store with the same records at the same revision, and no history. It shares the records, so
    /// this takes microseconds.
    pub fn fork(&self, clock: Clock) -> Self {
        let state = self.core.read().fork();
        Self { core: Arc::new(Core::new(state)), clock }
    }

    fn commit_now(&self, write: Write) -> Result<Arc<Record>, Error> {
        self.core.change(|state, wakes| {
            if state.closed {
                return Err(Error::Closed);
            }
            let current = state.record(&write.key);
            let event = decide(write, current, state.revision + 1, || self.clock.now())?;
            let record = event.record.clone();
            state.publish(event, wakes);
            Ok(record)
        })
    }

    fn expire_now(&self, now: Timestamp) -> Result<usize, Error> {
        let expired = self.core.change(|state, wakes| {
            if state.closed {
                return Err(Error::Closed);
            }
            let due = state.due(now);
            for key in &due {
                if let Some(record) = state.record(key) {
                    let event = removal(record, state.revision + 1);
                    state.publish(event, wakes);
                }
            }
            Ok(due.len())
        })?;
        self.core.age(now);
        Ok(expired)
    }
}

impl Engine for MemoryStore {
    fn core(&self) -> &Arc<Core> {
        &self.core
    }

    async fn read(&self, key: &Key, at: Option<Revision>) -> Result<Option<Arc<Record>>, Error> {
        self.core.get(key, at)
    }

    async fn read_page(&self, range: &Range, options: ListOptions) -> Result<Page, Error> {
        self.core.list(range, &options).await
    }

    async fn write(&self, write: Write) -> Result<Arc<Record>, Error> {
        self.commit_now(write)
    }

    async fn remove_expired(&self, now: Timestamp) -> Result<usize, Error> {
        self.expire_now(now)
    }

    async fn shut_down(&self) {
        self.core.close();
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.core.close();
    }
}
