//! Which pods have to go, and when. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use setpoint::{Instant, Key};

use super::toleration::Stay;

/// The pods that will have to go: at most as many as there are on tainted nodes.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeMap<Key, Instant>,
}

/// What is to be done about a pod now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays; `reprieved`: it was to go.
    Stays { reprieved: bool },
    /// It goes after this time.
    GoesIn(Duration),
    /// It goes now, this long after its time.
    Goes { late: Duration },
}

impl Schedule {
    /// Decides about a pod. Whoever has a date keeps it while some date is called for.
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

    /// Decides about a pod of which nothing new is known.
    pub(super) fn recall(&self, pod: &Key, now: Instant) -> Verdict {
        self.due.get(pod).map_or(Verdict::Stays { reprieved: false }, |due| self.at(*due, now))
    }

    /// Whether the pod has a date.
    pub(super) fn has(&self, pod: &Key) -> bool {
        self.due.contains_key(pod)
    }

    /// The pod is gone, or about to; says whether it had a date.
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
