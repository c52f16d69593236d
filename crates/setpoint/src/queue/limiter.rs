//! Rate limiters: how long a failed key waits before it is retried.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;
use parking_lot::Mutex;
use setpoint_clock::Clock;

use crate::backoff::{Backoff, TokenBucket};
use crate::reconcile::WorkKey;

/// Decides how long a failed key waits before it is retried.
///
/// ```
/// use std::time::Duration;
/// use setpoint::Key;
/// use setpoint::queue::{RateLimiter, limiter};
/// let limiter = limiter::default_limiter::<Key>();
/// let key = Key::namespaced("default", "web");
/// let delays: Vec<_> = (0..4).map(|_| limiter.when(&key).as_secs()).collect();
/// assert_eq!(delays, [0, 1, 2, 4]);
/// assert_eq!(limiter.retries(&key), 4);
/// limiter.forget(&key);
/// assert_eq!(limiter.when(&key), Duration::ZERO);
/// ```
pub trait RateLimiter<K>: Send + Sync + 'static {
    /// Counts a failure and returns how long to wait.
    fn when(&self, key: &K) -> Duration;
    /// Resets the failures of a key.
    fn forget(&self, key: &K);
    /// Returns the number of failures since the key was last forgotten.
    fn retries(&self, key: &K) -> u32;
}

/// Returns the default limiter: immediately, then after 1 s, 2 s, 4 s and so on, up to 5 minutes.
pub fn default_limiter<K: WorkKey>() -> Arc<dyn RateLimiter<K>> {
    Arc::new(PerKeyBackoff::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(300)).after(1)))
}

/// Returns the limiter that Kubernetes' own controllers use: 5 ms, 10 ms, 20 ms and so on, up to 1,000 s. Over all
/// keys, it allows a burst of 100 retries, then 10 per second.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint::{Clock, Key, queue::{RateLimiter, limiter}};
/// let limiter = limiter::kubernetes_limiter::<Key>(&Clock::system());
/// let delays: Vec<_> = (0..4).map(|_| limiter.when(&Key::cluster("node-1")).as_millis()).collect();
/// assert_eq!(delays, [5, 10, 20, 40]);
/// # });
/// ```
pub fn kubernetes_limiter<K: WorkKey>(clock: &Clock) -> Arc<dyn RateLimiter<K>> {
    let per_key = PerKeyBackoff::new(Backoff::doubling(Duration::from_millis(5), Duration::from_secs(1000)));
    Arc::new(MaxOf::new(vec![Arc::new(per_key), Arc::new(Bucket::new(clock.clone(), 10.0, 100))]))
}

/// Exponential backoff per key.
///
/// ```
/// use std::time::Duration;
/// use setpoint::{Key, backoff::Backoff, queue::{RateLimiter, limiter::PerKeyBackoff}};
/// let limiter = PerKeyBackoff::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10)));
/// let (a, b) = (Key::cluster("a"), Key::cluster("b"));
/// assert_eq!((limiter.when(&a).as_secs(), limiter.when(&a).as_secs(), limiter.when(&b).as_secs()), (1, 2, 1));
/// ```
pub struct PerKeyBackoff<K> {
    backoff: Backoff,
    /// One entry per key that has failed and not succeeded since: at most one per object.
    failures: Mutex<IndexMap<K, u32, DefaultHashBuilder>>,
}

impl<K: WorkKey> PerKeyBackoff<K> {
    /// Creates a limiter that applies `backoff` to each key.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: Mutex::new(IndexMap::default()) }
    }
}

impl<K: WorkKey> RateLimiter<K> for PerKeyBackoff<K> {
    fn when(&self, key: &K) -> Duration {
        let mut failures = self.failures.lock();
        // Look the key up before inserting it, so that it is cloned only on its first failure.
        let count = match failures.get_mut(key) {
            Some(count) => count,
            None => failures.entry(key.clone()).or_default(),
        };
        let delay = self.backoff.delay(*count);
        *count = count.saturating_add(1);
        delay
    }

    fn forget(&self, key: &K) {
        let mut failures = self.failures.lock();
        if !failures.is_empty() {
            failures.swap_remove(key);
        }
    }

    fn retries(&self, key: &K) -> u32 {
        let failures = self.failures.lock();
        if failures.is_empty() { 0 } else { failures.get(key).copied().unwrap_or(0) }
    }
}

/// A token bucket shared by all keys.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint::{Clock, Key, queue::{RateLimiter, limiter::Bucket}};
/// let limiter = Bucket::new(Clock::system(), 10.0, 1);
/// let delays: Vec<_> = ["a", "b", "c"].map(|name| limiter.when(&Key::cluster(name)).as_millis()).into();
/// assert_eq!(delays, [0, 100, 200]);
/// # });
/// ```
pub struct Bucket {
    clock: Clock,
    bucket: Mutex<TokenBucket>,
}

impl Bucket {
    /// Allows `per_second` retries per second, with bursts of `burst`.
    pub fn new(clock: Clock, per_second: f64, burst: u32) -> Self {
        Self { clock, bucket: Mutex::new(TokenBucket::new(per_second, burst)) }
    }
}

impl<K: WorkKey> RateLimiter<K> for Bucket {
    fn when(&self, _: &K) -> Duration {
        self.bucket.lock().reserve(self.clock.instant())
    }

    fn forget(&self, _: &K) {}

    fn retries(&self, _: &K) -> u32 {
        0
    }
}

/// A limiter that returns the longest delay of several others.
///
/// ```
/// use setpoint::{Key, queue::{RateLimiter, limiter::{MaxOf, default_limiter}}};
/// let limiter = MaxOf::new(vec![default_limiter::<Key>(), default_limiter::<Key>()]);
/// assert!(limiter.when(&Key::cluster("a")).is_zero());
/// ```
pub struct MaxOf<K> {
    limiters: Vec<Arc<dyn RateLimiter<K>>>,
}

impl<K: WorkKey> MaxOf<K> {
    /// Creates a limiter that queries all of `limiters`.
    pub fn new(limiters: Vec<Arc<dyn RateLimiter<K>>>) -> Self {
        Self { limiters }
    }
}

impl<K: WorkKey> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when(key)).max().unwrap_or_default()
    }

    fn forget(&self, key: &K) {
        self.limiters.iter().for_each(|limiter| limiter.forget(key));
    }

    fn retries(&self, key: &K) -> u32 {
        self.limiters.iter().map(|limiter| limiter.retries(key)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[tokio::test(start_paused = true)]
    async fn the_longest_of_several_delays_wins() {
        let per_key =
            PerKeyBackoff::new(Backoff::doubling(Duration::from_millis(30), Duration::from_secs(1)));
        let limiter =
            MaxOf::<Key>::new(vec![Arc::new(per_key), Arc::new(Bucket::new(Clock::system(), 10.0, 1))]);
        let key = Key::cluster("a");
        // 30, 60, 120 and 240 ms for the key; 0, 100, 200 and 300 ms for all keys.
        let delays: Vec<_> = (0..4).map(|_| limiter.when(&key).as_millis()).collect();
        assert_eq!((delays, limiter.retries(&key)), (vec![30, 100, 200, 300], 4));
        limiter.forget(&key);
        assert_eq!(limiter.retries(&key), 0);
    }
}
