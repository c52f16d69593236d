//! Which pods to evict, and when. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use setpoint::{Instant, Key};

use super::toleration::Stay;

/// Scheduled evictions. Bounded by the pods on tainted nodes.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeMap<Key, Instant>,
}

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays. `reprieved` says that it was scheduled for eviction.
    Stays { reprieved: bool },
    /// It is evicted after this time.
    GoesIn(Duration),
    /// It is evicted now, this long after its due time.
    Goes { late: Duration },
}

impl Schedule {
    /// Decides about a pod. A scheduled time is kept as long as the pod must be evicted at all.
    pub(super) fn decide(&mut self, pod: &Key, stay: Stay, now: Instant) -> Verdict {
        match stay {
            Stay::Forever => Verdict::Stays { reprieved: self.due.remove(pod).is_some() },
            Stay::Not => {
                self.due.remove(pod);
                Verdict::Goes { late: Duration::ZERO }
            }
            Stay::For(time) => {
                let due = *self.due.entry(pod.clone()).or_insert(now + time);
                self.at(due, now)
            }
        }
    }

    /// Returns the decision for a pod without new information.
    pub(super) fn recall(&self, pod: &Key, now: Instant) -> Verdict {
        self.due.get(pod).map_or(Verdict::Stays { reprieved: false }, |due| self.at(*due, now))
    }

    /// Whether the pod is scheduled for eviction.
    pub(super) fn has(&self, pod: &Key) -> bool {
        self.due.contains_key(pod)
    }

    /// Forgets a pod that is gone or terminating. Returns whether it was scheduled for eviction.
    pub(super) fn forget(&mut self, pod: &Key) -> bool {
        self.due.remove(pod).is_some()
    }

    fn at(&self, due: Instant, now: Instant) -> Verdict {
        match due.saturating_duration_since(now) {
            Duration::ZERO => Verdict::Goes { late: now.saturating_duration_since(due) },
            left => Verdict::GoesIn(left),
        }
    }
}
