//! Backoff for failed daemon pods, so that a pod that always fails is not recreated in a tight loop.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::backoff::Backoff;
use setpoint::{Clock, Instant, Key};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Failure counts: at most one entry per DaemonSet and node. Dropped with the DaemonSet, or after half an hour without
/// a failure.
pub(super) struct Failures {
    clock: Clock,
    entries: Mutex<BTreeMap<Key, BTreeMap<Box<str>, Failure>>>,
}

#[derive(Clone, Copy)]
struct Failure {
    /// The DaemonSet's observed generation. A new generation starts over.
    generation: i64,
    count: u32,
    last: Instant,
}

impl Failures {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, entries: Mutex::new(BTreeMap::new()) }
    }

    /// Returns how long the failed pod on a node must still be kept.
    pub(super) fn remaining(&self, set: &Key, generation: i64, node: &str) -> Option<Duration> {
        let entries = self.entries.lock();
        let failure = entries.get(set)?.get(node).filter(|failure| failure.generation == generation)?;
        let since = self.clock.instant().saturating_duration_since(failure.last);
        let wait = Backoff::doubling(FIRST, LONGEST).delay(failure.count.saturating_sub(1));
        wait.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// Counts the removal of a failed pod from a node.
    pub(super) fn count(&self, set: &Key, generation: i64, node: &str) {
        let now = self.clock.instant();
        let mut entries = self.entries.lock();
        let nodes = entries.entry(set.clone()).or_default();
        let is_recent = |failure: &Failure| now.saturating_duration_since(failure.last) < 2 * LONGEST;
        nodes.retain(|_, failure| is_recent(failure) && failure.generation == generation);
        let known = nodes.get(node).map_or(0, |failure| failure.count);
        nodes.insert(node.into(), Failure { generation, count: known.saturating_add(1), last: now });
    }

    pub(super) fn forget(&self, set: &Key) {
        self.entries.lock().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failing_daemon_pod_is_replaced_with_backoff() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let (failures, key) = (Failures::new(clock.clone()), Key::namespaced("ns", "d"));
        let left = |node: &str| failures.remaining(&key, 1, node).map(|left| left.as_secs());
        assert_eq!(left("n"), None);
        for expected in [1, 2, 4] {
            failures.count(&key, 1, "n");
            assert_eq!((left("n"), left("m")), (Some(expected), None));
            clock.sleep(Duration::from_secs(expected)).await;
            assert_eq!(left("n"), None);
        }
        failures.count(&key, 1, "n");
        assert_eq!(failures.remaining(&key, 2, "n"), None, "another generation starts over");
        clock.sleep(Duration::from_secs(3600)).await;
        failures.count(&key, 1, "n");
        assert_eq!(left("n"), Some(1), "forgotten");
    }
}
