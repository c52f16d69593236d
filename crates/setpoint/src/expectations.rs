//! Expectations: creates and deletes that a controller has requested but not yet seen in its cache.
//!
//! Until they are observed, or five minutes have passed, the cache is known to be stale, and the controller creates and
//! deletes nothing more for that key.
//!
//! Invariants:
//! - A key without expectations is satisfied.
//! - A delete is observed once, even though it is reported twice: when the object gets its deletion timestamp, and when
//!   it is removed.
//! - Observing more creates than expected satisfies the expectation: others may create objects too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Instant;

use crate::Clock;
use crate::reconcile::WorkKey;

/// After this time, an event is assumed to be lost, and the controller acts on its cache.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The outstanding creates (counted) and deletes (by name) of each key.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint::{Clock, Expectations, Key};
/// # let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
/// let expectations = Expectations::new(clock);
/// let set = Key::namespaced("default", "web");
/// expectations.expect_creations(&set, 2);
/// expectations.creation_observed(&set);
/// assert!(!expectations.satisfied(&set));
/// expectations.creation_observed(&set);
/// assert!(expectations.satisfied(&set));
/// # });
/// ```
pub struct Expectations<K> {
    clock: Clock,
    /// At most one entry per object that the controller has created or deleted something for. Forgotten with the
    /// object.
    expected: Mutex<BTreeMap<K, Expected>>,
}

struct Expected {
    /// Negative if more creates were observed than expected.
    creations: i64,
    deletions: BTreeSet<String>,
    since: Instant,
}

impl<K: WorkKey> Expectations<K> {
    /// Creates an empty set of expectations.
    pub fn new(clock: Clock) -> Self {
        Self { clock, expected: Mutex::new(BTreeMap::new()) }
    }

    /// Replaces a key's expectations with `count` creates.
    pub fn expect_creations(&self, key: &K, count: usize) {
        self.expect(key, count, BTreeSet::new());
    }

    /// Replaces a key's expectations with these deletes. Any unique name of the deleted object will do.
    pub fn expect_deletions(&self, key: &K, deleted: impl IntoIterator<Item = String>) {
        self.expect(key, 0, deleted.into_iter().collect());
    }

    /// Records that a create was observed, or failed and will not be observed.
    pub fn creation_observed(&self, key: &K) {
        self.creations_observed(key, 1);
    }

    /// Records that `count` creates were observed, or were never made.
    pub fn creations_observed(&self, key: &K, count: usize) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.creations = expected.creations.saturating_sub_unsigned(count as u64);
        }
    }

    /// Records that a delete was observed, or failed. Unexpected and repeated deletes are ignored.
    pub fn deletion_observed(&self, key: &K, deleted: &str) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.deletions.remove(deleted);
        }
    }

    /// Expects `count` more creates. Does nothing if the key has no expectations.
    pub fn raise_creations(&self, key: &K, count: usize) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.creations = expected.creations.saturating_add_unsigned(count as u64);
        }
    }

    /// Returns whether the cache has caught up with the controller's own writes for the key, or the timeout has passed.
    pub fn satisfied(&self, key: &K) -> bool {
        match self.expected.lock().get(key) {
            None => true,
            Some(expected) => expected.met() || self.is_expired(expected),
        }
    }

    /// Returns the number of outstanding creates and deletes.
    pub fn outstanding(&self, key: &K) -> (usize, usize) {
        match self.expected.lock().get(key) {
            None => (0, 0),
            Some(expected) => (usize::try_from(expected.creations).unwrap_or(0), expected.deletions.len()),
        }
    }

    /// Forgets a deleted key.
    pub fn forget(&self, key: &K) {
        self.expected.lock().remove(key);
    }

    fn expect(&self, key: &K, creations: usize, deletions: BTreeSet<String>) {
        let creations = i64::try_from(creations).unwrap_or(i64::MAX);
        let expected = Expected { creations, deletions, since: self.clock.instant() };
        self.expected.lock().insert(key.clone(), expected);
    }

    fn is_expired(&self, expected: &Expected) -> bool {
        self.clock.instant().saturating_duration_since(expected.since) > TIMEOUT
    }
}

impl Expected {
    fn met(&self) -> bool {
        self.creations <= 0 && self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn expectations() -> (Expectations<Key>, Key) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        (Expectations::new(clock), Key::namespaced("default", "web"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_without_expectations_is_satisfied() {
        let (expectations, key) = expectations();
        assert!(expectations.satisfied(&key));
        expectations.creation_observed(&key);
        expectations.deletion_observed(&key, "a");
        assert!(expectations.satisfied(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn more_creates_than_expected_satisfy() {
        let (expectations, key) = expectations();
        expectations.expect_creations(&key, 1);
        expectations.creations_observed(&key, 3);
        assert!(expectations.satisfied(&key));
        expectations.raise_creations(&key, 2);
        assert!(expectations.satisfied(&key), "two of the three were ahead of their expectation");
        expectations.raise_creations(&key, 1);
        assert!(!expectations.satisfied(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delete_is_observed_once() {
        let (expectations, key) = expectations();
        expectations.expect_deletions(&key, ["a".to_owned(), "b".to_owned()]);
        expectations.deletion_observed(&key, "a");
        expectations.deletion_observed(&key, "a");
        expectations.deletion_observed(&key, "unknown");
        assert_eq!(expectations.outstanding(&key), (0, 1));
        assert!(!expectations.satisfied(&key));
        expectations.deletion_observed(&key, "b");
        assert!(expectations.satisfied(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn expectations_expire_after_more_than_five_minutes() {
        let (expectations, key) = expectations();
        expectations.expect_creations(&key, 1);
        tokio::time::advance(TIMEOUT).await;
        assert!(!expectations.satisfied(&key));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(expectations.satisfied(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn new_expectations_replace_old_ones() {
        let (expectations, key) = expectations();
        expectations.expect_deletions(&key, ["a".to_owned()]);
        expectations.expect_creations(&key, 1);
        expectations.creation_observed(&key);
        assert!(expectations.satisfied(&key));
        expectations.expect_creations(&key, 1);
        expectations.forget(&key);
        assert!(expectations.satisfied(&key));
    }
}
