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
pub(crate) struct Pace<K> {
    clock: Clock,
    /// At most one entry per owner, dropped with it.
    beats: Mutex<BTreeMap<K, Beat>>,
}

#[derive(Clone, Copy)]
struct Beat {
    last: Instant,
    rest: Duration,
}

impl<K: WorkKey> Pace<K> {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, beats: Mutex::new(BTreeMap::new()) }
    }

    /// Returns how long until an owner should be reconciled again.
    pub(crate) fn delay(&self, key: &K) -> Duration {
        let now = self.clock.instant();
        let beats = self.beats.lock();
        beats.get(key).map_or(Duration::ZERO, |beat| (beat.last + beat.rest).saturating_duration_since(now))
    }

    /// Records a reconcile of an owner.
    pub(crate) fn looked(&self, key: &K) {
        let now = self.clock.instant();
        let mut beats = self.beats.lock();
        let beat = beats.entry(key.clone()).or_insert(Beat { last: now, rest: Duration::ZERO });
        let busy = now.saturating_duration_since(beat.last) < QUIET;
        let rest = if busy { (2 * beat.rest).clamp(SHORTEST, LONGEST) } else { SHORTEST };
        *beat = Beat { last: now, rest };
    }

    /// Forgets a deleted owner.
    pub(crate) fn forget(&self, key: &K) {
        self.beats.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times, in milliseconds, at which an owner that changes at these times is reconciled.
    async fn looks(changes: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let pace = Pace::new(clock.clone());
        let (start, key, mut looks) = (clock.instant(), "owner".to_owned(), Vec::new());
        let mut due: Option<Instant> = None;
        for change in changes {
            let change = start + Duration::from_millis(change);
            while let Some(look) = due.take_if(|look| *look <= change) {
                clock.sleep_until(look).await;
                pace.looked(&key);
                looks.push(look);
            }
            clock.sleep_until(change).await;
            due = due.or(Some(change + pace.delay(&key)));
        }
        looks.extend(due);
        looks.into_iter().map(|look| (look - start).as_millis() as u64).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_change_is_looked_at_at_once() {
        assert_eq!(looks([0, 5000, 10_000]).await, [0, 5000, 10_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handful_at_once_is_looked_at_twice() {
        assert_eq!(looks([0, 1, 2, 3, 4]).await, [0, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_looks_at_a_busy_owner_grow_rarer() {
        let every_10_ms = (0..300).map(|n| n * 10);
        assert_eq!(looks(every_10_ms).await, [0, 20, 60, 140, 300, 620, 1120, 1620, 2120, 2620, 3120]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_rest_the_next_change_is_a_first_one() {
        assert_eq!(looks([0, 1, 2, 30, 31, 2000, 2001]).await, [0, 20, 60, 2000, 2020]);
    }
}
