//! The state of a key while it is queued, processed or delayed.

use setpoint_clock::Instant;

use super::ready::Priority;
use super::trigger::Trigger;

pub(super) struct Entry<K> {
    /// `None` if the slot is free, in which case nothing below applies.
    pub(super) key: Option<K>,
    pub(super) hash: u64,
    /// Needs work: the key is in `ready`, or will be once its current processing is done.
    pub(super) dirty: bool,
    pub(super) processing: bool,
    pub(super) priority: Priority,
    /// The priority it was taken with, while `processing`.
    pub(super) taken_with: Priority,
    /// Its position in `ready`.
    pub(super) ticket: u64,
    pub(super) trigger: Trigger,
    /// Boxed, because few keys have one and every operation touches entries.
    pub(super) due: Option<Box<Due>>,
    /// For the metrics. Set only if they are enabled.
    pub(super) added_at: Option<Instant>,
    pub(super) started_at: Option<Instant>,
}

/// When a delayed key is added.
pub(super) struct Due {
    pub(super) at: Instant,
    /// A sequence number: delays that end at the same instant end in the order they were requested.
    pub(super) order: u64,
    /// When the first add that this delay postpones was requested.
    pub(super) since: Instant,
    pub(super) priority: Priority,
    pub(super) trigger: Trigger,
}

/// How a key is added once its delay is over.
pub(super) struct Add {
    /// `None` keeps the priority of the current processing, if there is one.
    pub(super) priority: Option<Priority>,
    pub(super) trigger: Trigger,
}

/// A snapshot of a key's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeySnapshot {
    pub(super) queued: bool,
    pub(super) processing: bool,
    pub(super) priority: Priority,
    pub(super) due: Option<Instant>,
}

impl<K: PartialEq> Entry<K> {
    pub(super) fn new(key: K, hash: u64) -> Self {
        Self {
            key: Some(key),
            hash,
            dirty: false,
            processing: false,
            priority: Priority::default(),
            taken_with: Priority::default(),
            ticket: 0,
            trigger: Trigger::default(),
            due: None,
            added_at: None,
            started_at: None,
        }
    }

    pub(super) fn holds(&self, key: &K) -> bool {
        self.key.as_ref() == Some(key)
    }

    pub(super) fn snapshot(&self) -> KeySnapshot {
        KeySnapshot {
            queued: self.dirty,
            processing: self.processing,
            priority: if self.dirty { self.priority } else { Priority::default() },
            due: self.due.as_ref().map(|due| due.at),
        }
    }
}
