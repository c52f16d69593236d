//! Watches: cursors into a resource's history.
//!
//! There is one ring of events per resource, and a watcher is a cursor into it, without its own buffer. A watcher that
//! falls behind what the ring keeps is disconnected and has to list again.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use crate::core::{Core, Registration, State};
use crate::history::History;
use crate::{Error, Range, Record, Revision};

/// The maximum number of events per call to [`Watch::next`]: 256 pointers, 2 KB.
const BATCH: usize = 256;

/// A committed change.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    /// The record that was written. For a removal, the last state, stamped with the revision of the removal.
    pub record: Arc<Record>,
    pub previous: Option<Arc<Record>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Created,
    Updated,
    Deleted,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The watcher was too slow: events it has not read yet are gone.
    #[error("the watch fell behind: changes after revision {seen} have been compacted")]
    FellBehind { seen: Revision },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// A function that returns the value of a record's field, for [`Trigger`]. Called while the store is locked, so it must
/// be fast and must not use the store.
pub type ValueOf = Arc<dyn Fn(&Record) -> &str + Send + Sync>;

/// A restriction of a watch to changes of records that have a value, or had it before.
#[derive(Clone)]
pub struct Trigger {
    /// The field. All triggers with this name must have the same function.
    pub name: &'static str,
    pub value: Arc<str>,
    pub of: ValueOf,
}

/// A cursor over the changes in a range.
pub struct Watch {
    core: Arc<Core>,
    range: Range,
    registration: Registration,
    seen: Revision,
}

impl Event {
    pub fn revision(&self) -> Revision {
        self.record.modified
    }
}

impl Watch {
    pub(crate) fn new(
        core: Arc<Core>,
        range: Range,
        trigger: Option<&Trigger>,
        from: Revision,
    ) -> Result<Self, Error> {
        let registration = core.add_watcher(&range, trigger, from)?;
        Ok(Self { core, range, registration, seen: from })
    }

    /// Waits for changes and returns them in order: at least one, and at most a bounded number. Cancel safe: dropping
    /// the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchError> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Like [`next`](Self::next), for manually written futures.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Arc<Event>>, WatchError>> {
        // A watcher of a busy resource always has something to read. The budget lets other tasks run.
        let coop = ready!(coop::poll_proceed(cx));
        let mut next = self.try_next();
        if let Ok(None) = next {
            self.registration.subscription.waker.register(cx.waker());
            // A change may have been published before the waker was registered.
            next = self.try_next();
        }
        let Some(result) = next.transpose() else { return Poll::Pending };
        coop.made_progress();
        Poll::Ready(result)
    }

    /// Returns the next changes, if there are any now.
    pub fn try_next(&mut self) -> Result<Option<Vec<Arc<Event>>>, WatchError> {
        let core = self.core.clone();
        let state = core.read();
        let group = &self.registration.subscription.group;
        if group.has_forgotten_after(self.registration.cursor) {
            return Err(WatchError::FellBehind { seen: self.seen });
        }
        let events =
            if group.has_appended_after(self.registration.cursor) { self.read(&state) } else { Vec::new() };
        match events.is_empty() {
            false => Ok(Some(events)),
            true if state.closed => Err(WatchError::Closed),
            true => Ok(None),
        }
    }

    /// Returns whether there are changes that have not been returned yet, or were lost.
    pub fn has_unread(&self) -> bool {
        self.is_behind(&self.core.read())
    }

    /// Returns the revision up to which all changes in the range have been returned.
    pub fn revision(&self) -> Revision {
        let state = self.core.read();
        if self.is_behind(&state) { self.seen } else { state.revision }
    }

    /// Returns a batch and advances the cursor past it, and past events that do not match.
    fn read(&mut self, state: &State) -> Vec<Arc<Event>> {
        let history = &state.resource_state_at(self.registration.resource_index).history;
        if let Some(sequences) = self.registration.subscription.group.listed(self.registration.cursor, BATCH)
        {
            return self.read_listed(history, &sequences);
        }
        let mut events = Vec::new();
        let mut cursor = self.registration.cursor.max(history.start());
        for event in history.since(cursor) {
            cursor += 1;
            self.seen = event.revision();
            if self.matches(event) {
                events.push(event.clone());
                if events.len() == BATCH {
                    break;
                }
            }
        }
        self.registration.cursor = cursor;
        self.exclude_unfinished(history);
        events
    }

    /// A revision may have several events, such as those of a lease. One that has not been read to its end has not been
    /// seen.
    fn exclude_unfinished(&mut self, history: &History) {
        let next = history.since(self.registration.cursor).next();
        if next.is_some_and(|event| event.revision() == self.seen) {
            self.seen -= 1;
        }
    }

    fn read_listed(&mut self, history: &History, sequences: &[u64]) -> Vec<Arc<Event>> {
        let mut events = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let Some(event) = history.since(*sequence).next() else { break };
            self.registration.cursor = sequence + 1;
            self.seen = event.revision();
            if self.matches(event) {
                events.push(event.clone());
            }
        }
        self.exclude_unfinished(history);
        events
    }

    /// Returns whether there are events that have not been returned yet.
    fn is_behind(&self, state: &State) -> bool {
        let group = &self.registration.subscription.group;
        group.has_forgotten_after(self.registration.cursor)
            || group.has_appended_after(self.registration.cursor) && {
                let history = &state.resource_state_at(self.registration.resource_index).history;
                match group.listed(self.registration.cursor, 1) {
                    Some(listed) => !listed.is_empty(),
                    None => history.since(self.registration.cursor).any(|event| self.matches(event)),
                }
            }
    }

    fn matches(&self, event: &Event) -> bool {
        self.range.has_path(&event.record.key.path)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core.remove_watcher(&self.registration);
    }
}
