//! Decides whether a write is accepted, and what event it causes. Pure, and shared by all engines.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::{Change, Error, Event, EventKind, Expect, Record, Revision, Write};

/// Returns the event of `write` at `revision`, if the key currently holds `current`.
pub(crate) fn decide(
    write: Write,
    current: Option<&Arc<Record>>,
    revision: Revision,
    now: impl FnOnce() -> Timestamp,
) -> Result<Event, Error> {
    if !write.expect.is_satisfied_by(current) {
        return Err(Error::Conflict { current: current.cloned() });
    }
    // A record that cannot be read must not be replaced blindly.
    if let Some(reason) = current.and_then(|record| record.unreadable()) {
        return Err(Error::Transform(reason.to_owned()));
    }
    match (write.change, current) {
        (Change::Put { payload, ttl }, current) => {
            let created = current.map_or(revision, |record| record.created);
            let expires = ttl.map(|ttl| after(now(), ttl));
            // An update reuses the existing key, so that all of history shares one copy.
            let key = current.map_or(write.key, |record| record.key.clone());
            let record = Arc::new(Record::new(key, payload, created, revision, expires));
            let kind = if current.is_some() { EventKind::Updated } else { EventKind::Created };
            Ok(Event { kind, record, previous: current.cloned() })
        }
        (Change::Delete, Some(current)) => Ok(removal(current, revision)),
        (Change::Delete, None) => Err(Error::Conflict { current: None }),
    }
}

/// Returns the event for the removal of `current` at `revision`.
pub(crate) fn removal(current: &Arc<Record>, revision: Revision) -> Event {
    let record = Arc::new(current.removed(revision));
    Event { kind: EventKind::Deleted, record, previous: Some(current.clone()) }
}

fn after(now: Timestamp, ttl: Duration) -> Timestamp {
    now.saturating_add(ttl).unwrap_or(Timestamp::MAX)
}

impl Expect {
    fn is_satisfied_by(self, current: Option<&Arc<Record>>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::Revision(revision) => current.is_some_and(|record| record.modified == revision),
        }
    }
}
