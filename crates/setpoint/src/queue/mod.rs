//! Stage 7: the work queue.
//!
//! Invariants:
//! - A key is in the queue at most once, and processed by at most one worker at a time.
//! - A key added while it is being processed is processed again afterwards: nothing is lost.
//! - Keys of the same [`Priority`] leave in the order they were added, and higher priorities leave first.
//! - No key waits forever, unless the queue is [strict](Queue::strict). `ready.rs` explains why.
//! - A delayed key is added when its delay is over.
//! - After a shutdown, nothing is added. Keys being processed can finish.
//! - A ready key reaches a waiting worker, if there is one. `core.rs` explains why.
//!
//! ```text
//!  queue      the public API: delays, retries, errors           mod.rs
//!  core       the lock and the wake-ups                         core.rs, waiters.rs
//!  state      keys that wait, are processed or are delayed      state.rs, entry.rs, ready.rs
//!  inspection the state of a key, and the metrics               inspect.rs, timing.rs
//! ```

mod core;
mod entry;
mod inspect;
pub mod limiter;
mod lock;
#[cfg(test)]
mod model;
mod ready;
mod state;
mod take;
#[cfg(test)]
mod tests;
mod timing;
mod trigger;
mod waiters;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use tokio::sync::Notify;

pub use inspect::KeyState;
pub use limiter::RateLimiter;
pub use ready::Priority;
pub use trigger::{Cause, Trigger};

use self::core::Core;
use self::entry::Add;
use self::take::Take;
use crate::Runtime;
use crate::backoff::Backoff;
use crate::metrics::{Metrics, QueueStats};
use crate::reconcile::WorkKey;
use limiter::PerKeyBackoff;

pub(crate) use self::take::Taken;

/// A work queue of keys, with delays, priorities and rate limits. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint::{Clock, Key, Queue, Rng, Runtime};
/// # let runtime = Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()), rng: Rng::seeded(1) };
/// let queue = Queue::new("web", &runtime);
/// let key = Key::namespaced("default", "web");
/// queue.add(key.clone());
/// queue.add(key.clone()); // already there
///
/// let taken = queue.take().await.unwrap();
/// queue.add(key.clone()); // worked on right now: comes again when that is done
/// assert!(queue.is_empty());
/// queue.done(&taken);
/// assert_eq!(queue.len(), 1);
///
/// queue.shut_down();
/// assert_eq!(queue.take().await, Some(key.clone()));
/// queue.done(&key);
/// assert_eq!(queue.take().await, None);
/// # });
/// ```
pub struct Queue<K> {
    shared: Arc<Inner<K>>,
}

struct Inner<K> {
    name: &'static str,
    clock: Clock,
    limiter: Arc<dyn RateLimiter<K>>,
    conflicts: PerKeyBackoff<K>,
    /// At most one short text per key that has not succeeded since.
    failures: Mutex<BTreeMap<K, Failure>>,
    core: Core<K>,
    /// Notified when the queue is drained.
    drained: Notify,
}

/// Since when a key has been failing, and its last error.
struct Failure {
    since: Instant,
    error: Arc<str>,
}

/// A conflict means that the cache is slightly behind. Ten milliseconds are usually enough.
const CONFLICT: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_secs(1));

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: WorkKey> Queue<K> {
    /// Creates a queue with the default rate limiter, [`limiter::default_limiter`]. `name` is its label in metrics.
    pub fn new(name: &'static str, runtime: &Runtime) -> Self {
        Self::with_rate_limiter(name, runtime, limiter::default_limiter())
    }

    /// Creates a queue with a custom rate limiter.
    pub fn with_rate_limiter(
        name: &'static str,
        runtime: &Runtime,
        limiter: Arc<dyn RateLimiter<K>>,
    ) -> Self {
        let shared = Inner {
            name,
            clock: runtime.clock.clone(),
            limiter,
            conflicts: PerKeyBackoff::new(CONFLICT),
            failures: Mutex::new(BTreeMap::new()),
            core: Core::new(),
            drained: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Delays [added](Self::add) keys by `window`, so that several changes within the window are processed once.
    /// Retries and explicit delays are not affected.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use setpoint::{Clock, Key, Queue, Rng, Runtime};
    /// # let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    /// # let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    /// let queue = Queue::new("slices", &runtime).batching(Duration::from_millis(500));
    /// queue.add(Key::cluster("web"));
    /// assert!(queue.is_empty());
    /// queue.take().await;
    /// assert_eq!(clock.now().to_string(), "2025-01-01T00:00:00.5Z");
    /// # });
    /// ```
    pub fn batching(self, window: Duration) -> Self {
        self.shared.core.lock().window = Some(window).filter(|window| !window.is_zero());
        self
    }

    /// Always hands out the highest priority first, even if lower priorities starve. By default, one turn in eleven
    /// goes to the key that has waited longest.
    ///
    /// A key that is added again while it is processed keeps its priority, so failures and delays do not change the
    /// order.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # use setpoint::{Clock, Key, Queue, Rng, Runtime};
    /// # use setpoint::queue::Priority;
    /// # let runtime = Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()), rng: Rng::seeded(1) };
    /// let queue = Queue::new("pods", &runtime).strict();
    /// for (name, priority) in [("web", 0), ("batch", -5), ("system", 2_000_000_000)] {
    ///     queue.add_with_priority(Key::cluster(name), Priority::new(priority));
    /// }
    /// for name in ["system", "web", "batch"] {
    ///     assert_eq!(queue.take().await, Some(Key::cluster(name)));
    /// }
    /// # });
    /// ```
    pub fn strict(self) -> Self {
        self.shared.core.lock().ready.strict = true;
        self
    }

    /// Limits the queue to `keys` waiting keys. When the limit is reached, informers whose handlers feed the queue stop
    /// reading until there is [room](Self::room), which holds back the watch instead of filling memory. Adding a key
    /// never fails: losing a key is worse than having one too many.
    pub fn bounded(self, keys: usize) -> Self {
        self.shared.core.lock().bound = Some(keys.max(1));
        self
    }

    /// Returns the queue's label in metrics.
    pub fn name(&self) -> &'static str {
        self.shared.name
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Adds the key now.
    pub fn add(&self, key: K) {
        self.add_because(key, Priority::Normal, Trigger::default);
    }

    /// Adds the key now with the given priority. The priority of a waiting key is raised if necessary, but never
    /// lowered.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # use setpoint::{Clock, Key, Queue, Rng, Runtime};
    /// # use setpoint::queue::Priority;
    /// # let runtime = Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()), rng: Rng::seeded(1) };
    /// let queue = Queue::new("web", &runtime);
    /// queue.add_with_priority(Key::cluster("old"), Priority::Low);
    /// queue.add(Key::cluster("new"));
    /// assert_eq!(queue.take().await, Some(Key::cluster("new")));
    /// # });
    /// ```
    pub fn add_with_priority(&self, key: K, priority: Priority) {
        self.add_because(key, priority, Trigger::default);
    }

    /// Adds the key now and records the trigger, for logs and traces.
    pub fn add_for(&self, key: K, priority: Priority, trigger: Trigger) {
        self.add_because(key, priority, || trigger);
    }

    /// Like [`add_for`](Self::add_for), but builds the trigger only if the key is not waiting already.
    #[inline]
    pub(crate) fn add_because(&self, key: K, priority: Priority, trigger: impl FnOnce() -> Trigger) {
        self.shared.core.add(key, priority, trigger, || self.shared.clock.instant());
    }

    /// Adds the key after `delay`. If the key is already delayed, the earlier time wins. A key that is being processed
    /// keeps its priority if that is above normal or the queue is [strict](Self::strict).
    pub fn add_after(&self, key: K, delay: Duration) {
        self.delay(key, delay, None, Cause::Delay);
    }

    /// Like [`add_after`](Self::add_after), with an explicit priority.
    pub fn add_after_with_priority(&self, key: K, delay: Duration, priority: Priority) {
        self.delay(key, delay, Some(priority), Cause::Delay);
    }

    /// Adds the key after the delay of the rate limiter.
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.shared.limiter.when(&key);
        self.delay(key, delay, None, Cause::Retry);
    }

    /// Adds the key after a short, slowly growing delay, because its reconcile acted on stale state.
    pub fn add_after_conflict(&self, key: K) {
        let delay = self.shared.conflicts.when(&key);
        self.delay(key, delay, None, Cause::Retry);
    }

    /// Adds the key once `quiet` has passed without another call for it, but no later than `at_most` after the first
    /// call, so that a key that is never quiet still gets its turn.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use setpoint::{Clock, Key, Queue, Rng, Runtime};
    /// # let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    /// # let queue = Queue::new("web", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    /// let (quiet, at_most) = (Duration::from_secs(2), Duration::from_secs(5));
    /// queue.debounce(Key::cluster("web"), quiet, at_most);
    /// clock.sleep(Duration::from_secs(1)).await;
    /// queue.debounce(Key::cluster("web"), quiet, at_most);
    /// queue.take().await;
    /// assert_eq!(clock.now().to_string(), "2025-01-01T00:00:03Z");
    /// # });
    /// ```
    pub fn debounce(&self, key: K, quiet: Duration, at_most: Duration) {
        let add = Add { priority: None, trigger: Cause::Delay.into() };
        let now = self.shared.clock.instant();
        self.shared.core.delay(|state| state.debounce(key, now, (quiet, at_most), add));
    }

    /// Removes a key that is queued or delayed, for example because its object is gone. Does not affect a reconcile in
    /// progress. Returns whether there was anything to remove.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # use setpoint::{Clock, Key, Queue, Rng, Runtime};
    /// # let runtime = Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()), rng: Rng::seeded(1) };
    /// let queue = Queue::new("web", &runtime);
    /// queue.add(Key::cluster("gone"));
    /// assert!(queue.cancel(&Key::cluster("gone")) && queue.is_empty());
    /// # });
    /// ```
    pub fn cancel(&self, key: &K) -> bool {
        let (cancelled, drained) = self.shared.core.cancel(key, || self.shared.clock.instant());
        if drained {
            self.shared.drained.notify_waiters();
        }
        cancelled
    }

    /// Cancels the delayed add of a key, if there is one. A queued key stays.
    pub fn cancel_delay(&self, key: &K) -> bool {
        self.shared.core.lock().cancel_delay(key)
    }

    /// Moves the delayed add of a key to `delay` from now, whether that is earlier or later than before.
    pub fn postpone(&self, key: K, delay: Duration) {
        self.cancel_delay(&key);
        self.add_after(key, delay);
    }

    /// Resets the key's failures after a success.
    pub fn forget(&self, key: &K) {
        self.recovered(key);
    }

    /// Like [`forget`](Self::forget), and returns how long the key had been failing, if it had.
    pub(crate) fn recovered(&self, key: &K) -> Option<Duration> {
        self.forget_retries(key);
        let mut failures = self.shared.failures.lock();
        let failure = if failures.is_empty() { None } else { failures.remove(key) };
        failure.map(|failure| self.shared.clock.instant().saturating_duration_since(failure.since))
    }

    /// Resets the key's retries but keeps its last error visible.
    pub fn forget_retries(&self, key: &K) {
        self.shared.limiter.forget(key);
        self.shared.conflicts.forget(key);
    }

    /// Returns the number of failures since the last success.
    pub fn retries(&self, key: &K) -> u32 {
        self.shared.limiter.retries(key).saturating_add(self.shared.conflicts.retries(key))
    }

    /// Records why a reconcile failed, so that [`state`](Self::state) shows it.
    pub fn record_error(&self, key: &K, error: impl Into<Arc<str>>) {
        let (error, now) = (error.into(), self.shared.clock.instant());
        let mut failures = self.shared.failures.lock();
        match failures.get_mut(key) {
            Some(failure) => failure.error = error,
            None => _ = failures.insert(key.clone(), Failure { since: now, error }),
        }
    }

    /// Waits for a key. Returns `None` once the queue is shut down and empty.
    ///
    /// Cancel safe: if the future is dropped before it completes, no key has been taken.
    pub fn take(&self) -> impl Future<Output = Option<K>> + Send + '_ {
        Take::new(&self.shared)
    }

    /// Like [`take`](Self::take), and also returns the trigger.
    pub(crate) fn take_work(&self) -> impl Future<Output = Option<Taken<K>>> + '_ {
        Take::new(&self.shared).work()
    }

    /// Marks a taken key as done.
    pub fn done(&self, key: &K) {
        if self.shared.core.done(key, || self.shared.clock.instant()) {
            self.shared.drained.notify_waiters();
        }
    }

    /// Waits until the queue is below its [bound](Self::bounded), or has ended.
    pub async fn room(&self) {
        std::future::poll_fn(|context| self.shared.core.poll_room(context.waker())).await;
    }

    /// Returns whether the queue is [bounded](Self::bounded).
    pub fn is_bounded(&self) -> bool {
        self.shared.core.lock().bound.is_some()
    }

    /// Returns the number of keys waiting for a worker.
    pub fn len(&self) -> usize {
        self.shared.core.with(|| self.shared.clock.instant(), |state| state.len())
    }

    /// Returns whether no key is waiting for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys being processed.
    pub fn processing(&self) -> usize {
        self.shared.core.lock().processing()
    }

    /// Returns the number of delayed keys.
    pub fn delayed(&self) -> usize {
        self.shared.core.lock().delayed()
    }

    /// Shuts the queue down: nothing more is added, and delayed keys are dropped. Waiting keys are still handed out,
    /// then [`take`](Self::take) returns `None`.
    pub fn shut_down(&self) {
        self.end(false);
    }

    /// Shuts the queue down and waits until all queued keys have been processed.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            if self.shared.core.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Shuts the queue down and drops waiting keys. Keys being processed can finish.
    pub fn shut_down_now(&self) {
        self.end(true);
    }

    /// Returns whether the queue has been shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.core.lock().stopping()
    }

    /// Exposes the queue's metrics as `workqueue_*`.
    pub fn observe(&self, metrics: &Metrics) {
        self.shared.core.lock().timing.observed = true;
        let shared: Arc<dyn QueueStats> = self.shared.clone();
        metrics.add_queue(self.shared.name, Arc::downgrade(&shared));
    }

    fn end(&self, drop_ready: bool) {
        if self.shared.core.end(drop_ready) {
            self.shared.drained.notify_waiters();
        }
    }

    fn delay(&self, key: K, delay: Duration, priority: Option<Priority>, cause: Cause) {
        let add = Add { priority, trigger: cause.into() };
        if delay.is_zero() {
            return self.shared.core.add_at_once(key, add, || self.shared.clock.instant());
        }
        let now = self.shared.clock.instant();
        // A time too far in the future to represent means never.
        self.shared.core.delay(|state| state.delay(key, now, delay, add));
    }
}
