//! A watcher's view of a resource's history.
//!
//! There is one ring of events per resource, and a watcher is a cursor into it: it holds no buffer of
//! its own. One that falls behind what the ring keeps is cut off and has to list again.

use std::sync::Arc;

use crate::{Range, Record, Revision};

/// One committed change.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    /// What was written; for a removal the last state, stamped with the revision of the removal.
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
    /// The watcher was too slow: what it has not read yet is gone.
    #[error("the watch fell behind: changes after revision {seen} have been compacted")]
    FellBehind { seen: Revision },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// A cursor over the changes of a range.
pub struct Watch {
    #[allow(dead_code)]
    range: Range,
}

impl Event {
    pub fn revision(&self) -> Revision {
        self.record.modified
    }
}

impl Watch {
    /// Waits for changes and returns the next ones, in order, at least one and at most a bounded
    /// number of them. Cancel-safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchError> {
        todo!()
    }

    /// Everything up to this revision in the range has been handed out.
    pub fn revision(&self) -> Revision {
        todo!()
    }
}
