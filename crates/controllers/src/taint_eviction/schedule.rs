//! Which pods to evict, and when. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use setpoint::{Instant, Key};

use super::toleration::Tolerated;

/// Scheduled evictions. Bounded by the pods on tainted nodes.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeMap<Key, Instant>,
}

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It stays. `cancelled` says that it was scheduled for eviction.
    Keep { cancelled: bool },
    /// It is evicted after this time.
    EvictIn(Duration),
    /// It is evicted now, this long after its due time.
    Evict { late: Duration },
}

impl Schedule {
    /// Decides about a pod. A scheduled time is kept as long as the pod must be evicted at all.
    pub(super) fn decide(&mut self, pod: &Key, tolerated: Tolerated, now: Instant) -> Decision {
        match tolerated {
            Tolerated::Forever => Decision::Keep { cancelled: self.due.remove(pod).is_some() },
            Tolerated::Not => {
                self.due.remove(pod);
                Decision::Evict { late: Duration::ZERO }
            }
            Tolerated::For(time) => {
                let due = *self.due.entry(pod.clone()).or_insert(now + time);
                self.at(due, now)
            }
        }
    }

    /// Returns the decision for a pod without new information.
    pub(super) fn scheduled(&self, pod: &Key, now: Instant) -> Decision {
        self.due.get(pod).map_or(Decision::Keep { cancelled: false }, |due| self.at(*due, now))
    }

    /// Whether the pod is scheduled for eviction.
    pub(super) fn has(&self, pod: &Key) -> bool {
        self.due.contains_key(pod)
    }

    /// Forgets a pod that is gone or terminating. Returns whether it was scheduled for eviction.
    pub(super) fn forget(&mut self, pod: &Key) -> bool {
        self.due.remove(pod).is_some()
    }

    fn at(&self, due: Instant, now: Instant) -> Decision {
        match due.saturating_duration_since(now) {
            Duration::ZERO => Decision::Evict { late: now.saturating_duration_since(due) },
            left => Decision::EvictIn(left),
        }
    }
}
