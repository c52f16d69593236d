//! What is kept of a key while it waits, is worked on or is delayed.

use setpoint_clock::Instant;

use super::ready::Priority;
use super::trigger::Trigger;

pub(super) struct Entry<K> {
    /// `None`: the slot is free, and nothing below is true.
    pub(super) key: Option<K>,
    pub(super) hash: u64,
    /// Wants to be worked on: in `ready`, or, while `processing`, once that is done.
    pub(super) dirty: bool,
    pub(super) processing: bool,
    pub(super) priority: Priority,
    /// The priority it was taken with, while `processing`.
    pub(super) taken_with: Priority,
    /// Its place in `ready`.
    pub(super) ticket: u64,
    pub(super) trigger: Trigger,
    /// Boxed: few keys have one, and every turn moves through entries.
    pub(super) due: Option<Box<Due>>,
    /// For the metrics, and only while somebody observes them.
    pub(super) added_at: Option<Instant>,
    pub(super) started_at: Option<Instant>,
}

/// When a delayed key is added.
pub(super) struct Due {
    pub(super) at: Instant,
    /// Numbers the delays, so that those of one instant end in the order they were asked for.
    pub(super) order: u64,
    /// When the first of the adds was asked for that this delay puts off.
    pub(super) since: Instant,
    pub(super) priority: Priority,
    pub(super) trigger: Trigger,
}

/// How a key is added once its delay is over.
pub(super) struct Add {
    /// `None`: that of the work on the key, if it is worked on.
    pub(super) priority: Option<Priority>,
    pub(super) trigger: Trigger,
}

/// What a queue knows about a key at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
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

    pub(super) fn standing(&self) -> Standing {
        Standing {
            queued: self.dirty,
            processing: self.processing,
            priority: if self.dirty { self.priority } else { Priority::default() },
            due: self.due.as_ref().map(|due| due.at),
        }
    }
}
