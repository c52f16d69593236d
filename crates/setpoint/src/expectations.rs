//! Creates and deletes that a controller has asked for and not yet seen in its cache.
//!
//! Until they are met, or five minutes have passed, the cache is known to be behind and the
//! controller neither creates nor deletes anything more for that key.
//!
//! What always holds:
//! - a key without expectations is satisfied;
//! - a delete is observed once, however often it is reported: as an object that is being deleted, and
//!   again as one that is gone;
//! - more creates may be observed than were expected (somebody else creates too): that satisfies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Instant;

use crate::Clock;
use crate::reconcile::WorkKey;

/// After this time a missed event is assumed: the controller acts on what its cache shows.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Outstanding creates (counted) and deletes (by what is deleted) per key.
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
    /// At most one per object that the controller has created or deleted something for; forgotten
    /// with the object.
    expected: Mutex<BTreeMap<K, Expected>>,
}

struct Expected {
    /// Below zero: more were observed than expected.
    creations: i64,
    deletions: BTreeSet<String>,
    since: Instant,
}

impl<K: WorkKey> Expectations<K> {
    /// Nothing is expected.
    pub fn new(clock: Clock) -> Self {
        Self { clock, expected: Mutex::new(BTreeMap::new()) }
    }

    /// Replaces the expectations of a key: `count` creates.
    pub fn expect_creations(&self, key: &K, count: usize) {
        self.expect(key, count, BTreeSet::new());
    }

    /// Replaces the expectations of a key: these deletes, by any unique name of what is deleted.
    pub fn expect_deletions(&self, key: &K, deleted: impl IntoIterator<Item = String>) {
        self.expect(key, 0, deleted.into_iter().collect());
    }

    /// One of the creates has been seen, or has failed and will not be.
    pub fn creation_observed(&self, key: &K) {
        self.creations_observed(key, 1);
    }

    /// Several of the creates have been seen, or were never made.
    pub fn creations_observed(&self, key: &K, count: usize) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.creations = expected.creations.saturating_sub_unsigned(count as u64);
        }
    }

    /// One of the deletes has been seen, or has failed. What was not expected, or was seen before,
    /// makes no difference.
    pub fn deletion_observed(&self, key: &K, deleted: &str) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.deletions.remove(deleted);
        }
    }

    /// More creates are expected; nothing if the key has no expectations.
    pub fn raise_creations(&self, key: &K, count: usize) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.creations = expected.creations.saturating_add_unsigned(count as u64);
        }
    }

    /// Whether the cache has caught up with the key's own writes, or has had its time.
    pub fn satisfied(&self, key: &K) -> bool {
        match self.expected.lock().get(key) {
            None => true,
            Some(expected) => expected.met() || self.is_expired(expected),
        }
    }

    /// How many creates and deletes are outstanding.
    pub fn outstanding(&self, key: &K) -> (usize, usize) {
        match self.expected.lock().get(key) {
            None => (0, 0),
            Some(expected) => (usize::try_from(expected.creations).unwrap_or(0), expected.deletions.len()),
        }
    }

    /// The key is gone.
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
