//! Batches frequent changes of an owner.
//!
//! A pod that becomes ready changes a count in its owner's status, which may change the status of the owner's owner.
//! Fifty of these within a second should not cause fifty writes of each. So the first change is reconciled at once;
//! while changes keep coming, the interval between reconciles grows; after a second without one, the next change counts
//! as the first again.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::reconcile::WorkKey;
use setpoint::{Clock, Instant};

/// The shortest and longest interval between reconciles of a busy owner.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);
/// An owner is no longer busy after this time without a reconcile.
const QUIET: Duration = Duration::from_secs(1);

/// Tracks how often owners are reconciled.
pub(crate) struct Throttle<K> {
    clock: Clock,
    /// At most one entry per owner, dropped with it.
    entries: Mutex<BTreeMap<K, Entry>>,
}

#[derive(Clone, Copy)]
struct Entry {
    last: Instant,
    interval: Duration,
}

impl<K: WorkKey> Throttle<K> {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, entries: Mutex::new(BTreeMap::new()) }
    }

    /// Returns how long until an owner should be reconciled again.
    pub(crate) fn delay(&self, key: &K) -> Duration {
        let now = self.clock.instant();
        let entries = self.entries.lock();
        entries
            .get(key)
            .map_or(Duration::ZERO, |entry| (entry.last + entry.interval).saturating_duration_since(now))
    }

    /// Records a reconcile of an owner.
    pub(crate) fn reconciled(&self, key: &K) {
        let now = self.clock.instant();
        let mut entries = self.entries.lock();
        let entry = entries.entry(key.clone()).or_insert(Entry { last: now, interval: Duration::ZERO });
        let busy = now.saturating_duration_since(entry.last) < QUIET;
        let interval = if busy { (2 * entry.interval).clamp(SHORTEST, LONGEST) } else { SHORTEST };
        *entry = Entry { last: now, interval };
    }

    /// Forgets a deleted owner.
    pub(crate) fn forget(&self, key: &K) {
        self.entries.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times, in milliseconds, at which an owner that changes at these times is reconciled.
    async fn reconciles(changes: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let throttle = Throttle::new(clock.clone());
        let (start, key, mut reconciles) = (clock.instant(), "owner".to_owned(), Vec::new());
        let mut due: Option<Instant> = None;
        for change in changes {
            let change = start + Duration::from_millis(change);
            while let Some(look) = due.take_if(|look| *look <= change) {
                clock.sleep_until(look).await;
                throttle.reconciled(&key);
                reconciles.push(look);
            }
            clock.sleep_until(change).await;
            due = due.or(Some(change + throttle.delay(&key)));
        }
        reconciles.extend(due);
        reconciles.into_iter().map(|look| (look - start).as_millis() as u64).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_is_reconciled_at_once() {
        assert_eq!(reconciles([0, 5000, 10_000]).await, [0, 5000, 10_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_reconciled_twice() {
        assert_eq!(reconciles([0, 1, 2, 3, 4]).await, [0, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_interval_of_a_busy_owner_grows() {
        let every_10_ms = (0..300).map(|n| n * 10);
        assert_eq!(reconciles(every_10_ms).await, [0, 20, 60, 140, 300, 620, 1120, 1620, 2120, 2620, 3120]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_quiet_period_the_next_change_is_reconciled_at_once() {
        assert_eq!(reconciles([0, 1, 2, 30, 31, 2000, 2001]).await, [0, 20, 60, 2000, 2020]);
    }
}
