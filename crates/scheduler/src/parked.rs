//! Pods that fit nowhere, until something changes that could help.

use std::collections::BTreeSet;

use setpoint::{Key, Queue};

use crate::view::{NodeView, PodView};

/// The parked pods. Bounded by the number of pending pods.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    keys: BTreeSet<Key>,
}

impl Parked {
    pub(crate) fn park(&mut self, key: Key) {
        self.keys.insert(key);
    }

    pub(crate) fn remove(&mut self, key: &Key) -> bool {
        self.keys.remove(key)
    }

    /// Something changed that could make room for any of them: all are tried again, each after the
    /// back-off of its own failures.
    pub(crate) fn release_all(&mut self, queue: &Queue<Key>) {
        for key in std::mem::take(&mut self.keys) {
            queue.add_rate_limited(key);
        }
    }
}

/// Whether a change of a node could make a pod fit.
pub(crate) fn could_help(old: &NodeView, new: &NodeView, labels_changed: bool) -> bool {
    labels_changed || old != new
}

/// Whether a change of a pending pod could make it fit: its own status cannot.
pub(crate) fn asks_differently(old: &PodView, new: &PodView, labels_changed: bool) -> bool {
    labels_changed || old.spec != new.spec
}
