//! Stage 7: the work queue.
//!
//! What always holds:
//! - a key is in the queue at most once, and worked on by at most one worker at a time;
//! - a key added while it is worked on is worked on again afterwards: nothing is lost;
//! - keys of one [`Priority`] are handed out in the order they were added, and higher priorities first;
//! - no key waits for ever, unless the queue was asked to be [strict](Queue::strict): `ready.rs` says why;
//! - a delayed key is added when its time comes;
//! - after a shutdown nothing is added; what is being worked on can finish;
//! - a key that is ready finds a waiting worker, if there is one (`core.rs` says why).
//!
//! ```text
//!  queue      what people call: delays, retries, errors        mod.rs
//!  core       the lock, and who is woken                       core.rs, waiters.rs
//!  state      which keys wait, are worked on, are delayed      state.rs, entry.rs, ready.rs
//!  inspection what is known about a key, and the metrics       inspect.rs, timing.rs
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
use limiter::PerKey;

pub(crate) use self::take::Taken;

/// A queue of keys: plain, delaying and rate-limiting in one. Cheap to clone.
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
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    name: &'static str,
    clock: Clock,
    limiter: Arc<dyn RateLimiter<K>>,
    conflicts: PerKey<K>,
    /// At most one short text per key that has not succeeded since.
    failures: Mutex<BTreeMap<K, Failure>>,
    core: Core<K>,
    /// Whoever drains the queue waits here.
    drained: Notify,
}

/// Since when a key has been failing, and why it did last.
struct Failure {
    since: Instant,
    error: Arc<str>,
}

/// A conflict means that the cache is a moment behind: ten milliseconds usually suffice.
const CONFLICT: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_secs(1));

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: WorkKey> Queue<K> {
    /// A queue with the default rate limiter, [`limiter::patient`]. `name` is its label in metrics.
    pub fn new(name: &'static str, runtime: &Runtime) -> Self {
        Self::with_rate_limiter(name, runtime, limiter::patient())
    }

    /// A queue with another rate limiter.
    pub fn with_rate_limiter(
        name: &'static str,
        runtime: &Runtime,
        limiter: Arc<dyn RateLimiter<K>>,
    ) -> Self {
        let shared = Shared {
            name,
            clock: runtime.clock.clone(),
            limiter,
            conflicts: PerKey::new(CONFLICT),
            failures: Mutex::new(BTreeMap::new()),
            core: Core::new(),
            drained: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Keys that are [added](Self::add) wait this long for others to come together with them: what changes
    /// often within the window is worked on once. Retries and delays are as asked for.
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
        self.shared.core.look().window = Some(window).filter(|window| !window.is_zero());
        self
    }

    /// Always hands out the highest priority first, even if lower ones starve. By default one turn in eleven goes to
    /// the key that has waited longest.
    ///
    /// A key that its own work adds again keeps its priority: failures and delays do not change the order.
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
        self.shared.core.look().ready.strict = true;
        self
    }

    /// With `keys` waiting the queue is full: informers whose handlers feed it read no further until there
    /// is [room](Self::room), and so the watch is held back instead of memory filling up. Whoever adds a key
    /// all the same is not refused: a key that is lost is worse than one too many.
    pub fn bounded(self, keys: usize) -> Self {
        self.shared.core.look().bound = Some(keys.max(1));
        self
    }

    /// The label of this queue in metrics.
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

    /// Adds the key now, as urgent as this. A key that waits already is raised, never lowered.
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

    /// Adds the key now, and says what set it off: for logs and traces.
    pub fn add_for(&self, key: K, priority: Priority, trigger: Trigger) {
        self.add_because(key, priority, || trigger);
    }

    /// The same; a key that waits already is not told what else set it off.
    #[inline]
    pub(crate) fn add_because(&self, key: K, priority: Priority, trigger: impl FnOnce() -> Trigger) {
        self.shared.core.add(key, priority, trigger, || self.shared.clock.instant());
    }

    /// Adds the key once `delay` has passed; of several delays for a key the earliest counts. While the key is worked
    /// on it keeps its priority, if that is above normal or the queue is [strict](Self::strict).
    pub fn add_after(&self, key: K, delay: Duration) {
        self.delay(key, delay, None, Cause::Delay);
    }

    /// The same, with this priority.
    pub fn add_after_with_priority(&self, key: K, delay: Duration, priority: Priority) {
        self.delay(key, delay, Some(priority), Cause::Delay);
    }

    /// Adds the key after the delay of its rate limiter.
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.shared.limiter.when(&key);
        self.delay(key, delay, None, Cause::Retry);
    }

    /// Adds the key after a short delay that grows slowly: its work met a newer state than it had seen.
    pub fn add_after_conflict(&self, key: K) {
        let delay = self.shared.conflicts.when(&key);
        self.delay(key, delay, None, Cause::Retry);
    }

    /// Adds the key once `quiet` has passed without this being asked again, but no later than `at_most`
    /// after it was first asked: what never keeps quiet has its turn too.
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

    /// Takes back what was added for a key and is not being worked on yet: its object is gone, say. Whether there was
    /// anything to take back.
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

    /// Takes back the delayed add of a key, if there is one. What is already queued stays.
    pub fn cancel_delay(&self, key: &K) -> bool {
        self.shared.core.look().cancel_delay(key)
    }

    /// Puts the delayed add of a key off (or forward) to `delay` from now, whatever it was before.
    pub fn postpone(&self, key: K, delay: Duration) {
        self.cancel_delay(&key);
        self.add_after(key, delay);
    }

    /// The key's work succeeded: its next failure is its first.
    pub fn forget(&self, key: &K) {
        self.recovered(key);
    }

    /// The same; how long the key had been failing, if it had.
    pub(crate) fn recovered(&self, key: &K) -> Option<Duration> {
        self.forget_retries(key);
        let mut failures = self.shared.failures.lock();
        let failure = if failures.is_empty() { None } else { failures.remove(key) };
        failure.map(|failure| self.shared.clock.instant().saturating_duration_since(failure.since))
    }

    /// The key's next failure is its first, but why it failed last stays visible.
    pub fn forget_retries(&self, key: &K) {
        self.shared.limiter.forget(key);
        self.shared.conflicts.forget(key);
    }

    /// How often the key has failed since it last succeeded.
    pub fn retries(&self, key: &K) -> u32 {
        self.shared.limiter.retries(key).saturating_add(self.shared.conflicts.retries(key))
    }

    /// Notes why the work on a key failed, for whoever looks at its [state](Self::state).
    pub fn record_error(&self, key: &K, error: impl Into<Arc<str>>) {
        let (error, now) = (error.into(), self.shared.clock.instant());
        let mut failures = self.shared.failures.lock();
        match failures.get_mut(key) {
            Some(failure) => failure.error = error,
            None => _ = failures.insert(key.clone(), Failure { since: now, error }),
        }
    }

    /// Waits for a key to work on; `None` once the queue is shut down and empty.
    ///
    /// Dropping the future loses nothing: no key has been taken before it is ready.
    pub fn take(&self) -> impl Future<Output = Option<K>> + Send + '_ {
        Take::new(&self.shared)
    }

    /// The same, with what set the work off.
    pub(crate) fn take_work(&self) -> impl Future<Output = Option<Taken<K>>> + '_ {
        Take::new(&self.shared).work()
    }

    /// The work on a taken key has ended.
    pub fn done(&self, key: &K) {
        if self.shared.core.done(key, || self.shared.clock.instant()) {
            self.shared.drained.notify_waiters();
        }
    }

    /// Waits until fewer keys wait than the queue is [bounded](Self::bounded) to, or it has ended.
    pub async fn room(&self) {
        std::future::poll_fn(|context| self.shared.core.poll_room(context.waker())).await;
    }

    /// Whether the queue is [bounded](Self::bounded).
    pub fn is_bounded(&self) -> bool {
        self.shared.core.look().bound.is_some()
    }

    /// How many keys wait for a worker.
    pub fn len(&self) -> usize {
        self.shared.core.with(|| self.shared.clock.instant(), |state| state.len())
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are worked on.
    pub fn processing(&self) -> usize {
        self.shared.core.look().processing()
    }

    /// How many keys wait for their time.
    pub fn delayed(&self) -> usize {
        self.shared.core.look().delayed()
    }

    /// Ends the queue: from here on nothing is added and delayed keys are dropped; what waits is
    /// still handed out, then [`take`](Self::take) says `None`.
    pub fn shut_down(&self) {
        self.end(false);
    }

    /// Ends the queue and waits until everything that was in it has been worked on.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            if self.shared.core.look().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Ends the queue and drops what waits; what is worked on can finish.
    pub fn shut_down_now(&self) {
        self.end(true);
    }

    /// Whether the queue has been ended.
    pub fn is_shut_down(&self) -> bool {
        self.shared.core.look().stopping()
    }

    /// Shows its metrics as `workqueue_*` from here on.
    pub fn observe(&self, metrics: &Metrics) {
        self.shared.core.look().timing.observed = true;
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
        // What is later than time can tell is never.
        self.shared.core.delay(|state| state.delay(key, now, delay, add));
    }
}
