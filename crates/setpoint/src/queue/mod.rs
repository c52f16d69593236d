//! Stage 7: the work queue.
//!
//! What always holds:
//! - a key is in the queue at most once, and worked on by at most one worker at a time;
//! - a key added while it is worked on is worked on again afterwards: nothing is lost;
//! - keys are handed out in the order they were added; a delayed key is added when its time comes;
//! - after a shutdown nothing is added; what is being worked on can finish;
//! - a key that is ready finds a waiting worker, if there is one.
//!
//! The last point rests on two rules. A taker registers for a wake-up *before* it looks a last time,
//! and a wake-up it does not need goes to the next one (tokio's `Notify` does that when a registered
//! waiter is dropped). And of the takers that wait one is the timekeeper: it alone watches the clock
//! for the earliest delay, and whenever it stops doing so, because it got a key or because it was
//! dropped, it wakes another one to take the post. So there is one timer and no task of its own.

pub mod limiter;
#[cfg(test)]
mod model;
mod state;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use setpoint_clock::{Clock, Instant};
use tokio::sync::Notify;

pub use limiter::RateLimiter;

use crate::Runtime;
use crate::backoff::Backoff;
use crate::metrics::{Metrics, QueueFigures, QueueStats};
use crate::reconcile::WorkKey;
use limiter::PerKey;
use state::{Standing, State};

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
    /// Why the last try of a key failed: at most one short text per key that has not succeeded since.
    errors: Mutex<BTreeMap<K, Arc<str>>>,
    state: Mutex<State<K>>,
    /// Takers wait here for a key or for the timekeeper's post.
    wake: Notify,
    /// The timekeeper waits here for an earlier delay.
    rearm: Notify,
    /// Whoever drains the queue waits here.
    drained: Notify,
}

/// A conflict means that the cache is a moment behind: ten milliseconds usually suffice.
const CONFLICT: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_secs(1));

/// What a queue knows about a key.
///
/// ```
/// use setpoint::queue::KeyState;
/// let unknown = KeyState::default();
/// assert!(!unknown.queued && !unknown.processing && unknown.retries == 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// Waits for a worker, or, while `processing`, for the present work to end.
    pub queued: bool,
    /// A worker is on it.
    pub processing: bool,
    /// Will be added then.
    pub delayed_until: Option<Instant>,
    /// How often it has failed since it last succeeded.
    pub retries: u32,
    /// Why the last try failed, if it did.
    pub last_error: Option<Arc<str>>,
}

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
            errors: Mutex::new(BTreeMap::new()),
            state: Mutex::new(State::new()),
            wake: Notify::new(),
            rearm: Notify::new(),
            drained: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
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
        let (mut state, promoted) = self.shared.lock();
        let ready = state.add(key, || self.shared.clock.instant());
        drop(state);
        self.shared.wake(promoted + usize::from(ready));
    }

    /// Adds the key once `delay` has passed; of several delays for a key the earliest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            self.shared.state.lock().count_retry();
            return self.add(key);
        }
        // What is later than time can tell is never.
        if let Some(due) = self.shared.clock.instant().checked_add(delay) {
            self.delay_until(key, due);
        }
    }

    /// Adds the key after the delay of its rate limiter.
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.shared.limiter.when(&key);
        self.add_after(key, delay);
    }

    /// Adds the key after a short delay that grows slowly: its work met a newer state than it had seen.
    pub fn add_after_conflict(&self, key: K) {
        let delay = self.shared.conflicts.when(&key);
        self.add_after(key, delay);
    }

    /// Takes back the delayed add of a key, if there is one. What is already queued stays.
    pub fn cancel_delay(&self, key: &K) -> bool {
        self.shared.state.lock().cancel_delay(key)
    }

    /// Puts the delayed add of a key off (or forward) to `delay` from now, whatever it was before.
    pub fn postpone(&self, key: K, delay: Duration) {
        self.cancel_delay(&key);
        self.add_after(key, delay);
    }

    /// The key's work succeeded: its next failure is its first.
    pub fn forget(&self, key: &K) {
        self.forget_retries(key);
        let mut errors = self.shared.errors.lock();
        if !errors.is_empty() {
            errors.remove(key);
        }
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
        self.shared.errors.lock().insert(key.clone(), error.into());
    }

    /// Waits for a key to work on; `None` once the queue is shut down and empty.
    ///
    /// Dropping the future loses nothing: no key has been taken before it is ready.
    pub async fn take(&self) -> Option<K> {
        let shared = &*self.shared;
        loop {
            if let Some(taken) = shared.try_take() {
                return taken;
            }
            let mut woken = pin!(shared.wake.notified());
            woken.as_mut().enable();
            if let Some(taken) = shared.try_take() {
                return taken;
            }
            match Timekeeper::appoint(shared) {
                None => woken.await,
                Some((keeper, due)) => {
                    tokio::select! {
                        biased;
                        () = woken => {}
                        () = shared.rearm.notified() => {}
                        () = shared.clock.sleep_until(due) => {}
                    }
                    keeper.resign();
                }
            }
        }
    }

    /// The work on a taken key has ended.
    pub fn done(&self, key: &K) {
        let (mut state, promoted) = self.shared.lock();
        let ready = state.done(key, || self.shared.clock.instant());
        let drained = state.stopping() && state.is_drained();
        drop(state);
        self.shared.wake(promoted + usize::from(ready));
        if drained {
            self.shared.drained.notify_waiters();
        }
    }

    /// How many keys wait for a worker.
    pub fn len(&self) -> usize {
        let (state, promoted) = self.shared.lock();
        let len = state.len();
        drop(state);
        self.shared.wake(promoted);
        len
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are worked on.
    pub fn processing(&self) -> usize {
        self.shared.state.lock().processing()
    }

    /// How many keys wait for their time.
    pub fn delayed(&self) -> usize {
        self.shared.state.lock().delayed()
    }

    /// What the queue knows about a key.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use setpoint::{Clock, Key, Queue, Rng, Runtime};
    /// # let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    /// # let queue = Queue::new("web", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    /// let key = Key::cluster("node-1");
    /// queue.record_error(&key, "the lease is not there");
    /// queue.add_after(key.clone(), Duration::from_secs(5));
    /// let state = queue.state(&key);
    /// assert_eq!(state.delayed_until, Some(clock.instant() + Duration::from_secs(5)));
    /// assert_eq!(state.last_error.as_deref(), Some("the lease is not there"));
    /// # });
    /// ```
    pub fn state(&self, key: &K) -> KeyState {
        let standing = self.shared.state.lock().standing(key);
        self.describe(key, standing)
    }

    /// Every key that waits, is worked on, is delayed or has failed, in key order.
    pub fn states(&self) -> BTreeMap<K, KeyState> {
        let mut standings: BTreeMap<K, Standing> = self.shared.state.lock().standings().into_iter().collect();
        for key in self.shared.errors.lock().keys() {
            standings.entry(key.clone()).or_default();
        }
        standings.into_iter().map(|(key, standing)| (key.clone(), self.describe(&key, standing))).collect()
    }

    /// Ends the queue: from here on nothing is added and delayed keys are dropped; what waits is
    /// still handed out, then [`take`](Self::take) says `None`.
    pub fn shut_down(&self) {
        let mut state = self.shared.state.lock();
        state.stop();
        self.shared.end(state);
    }

    /// Ends the queue and waits until everything that was in it has been worked on.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            if self.shared.state.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Ends the queue and drops what waits; what is worked on can finish.
    pub fn shut_down_now(&self) {
        let mut state = self.shared.state.lock();
        state.stop();
        state.drop_ready();
        self.shared.end(state);
    }

    /// Whether the queue has been ended.
    pub fn is_shut_down(&self) -> bool {
        self.shared.state.lock().stopping()
    }

    /// Shows its figures as `workqueue_*` from here on.
    pub fn observe(&self, metrics: &Metrics) {
        self.shared.state.lock().timing.observed = true;
        let shared: Arc<dyn QueueStats> = self.shared.clone();
        metrics.add_queue(self.shared.name, Arc::downgrade(&shared));
    }

    fn delay_until(&self, key: K, due: Instant) {
        let mut state = self.shared.state.lock();
        state.count_retry();
        let (earliest, kept) = (state.delay(key, due), state.timekeeper);
        drop(state);
        match (earliest, kept) {
            (false, _) => {}
            (true, true) => self.shared.rearm.notify_one(),
            (true, false) => self.shared.wake.notify_one(),
        }
    }

    fn describe(&self, key: &K, standing: Standing) -> KeyState {
        KeyState {
            queued: standing.queued,
            processing: standing.processing,
            delayed_until: standing.due,
            retries: self.retries(key),
            last_error: self.shared.errors.lock().get(key).cloned(),
        }
    }
}

impl<K: WorkKey> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Queue")
            .field("name", &self.shared.name)
            .field("ready", &state.len())
            .field("processing", &state.processing())
            .field("delayed", &state.delayed())
            .finish()
    }
}

impl<K: WorkKey> Shared<K> {
    /// The state, with every key added whose time has come, and how many these were.
    fn lock(&self) -> (MutexGuard<'_, State<K>>, usize) {
        let mut state = self.state.lock();
        let promoted = match state.earliest() {
            Some(_) => state.promote(self.clock.instant()),
            None => 0,
        };
        (state, promoted)
    }

    /// Wakes as many takers as keys became ready.
    fn wake(&self, ready: usize) {
        for _ in 0..ready {
            self.wake.notify_one();
        }
    }

    /// `Some(None)`: the queue has ended.
    fn try_take(&self) -> Option<Option<K>> {
        let (mut state, promoted) = self.lock();
        let taken = state.take(|| self.clock.instant());
        let ended = taken.is_none() && state.stopping();
        let left = promoted.saturating_sub(usize::from(taken.is_some()));
        let post_is_vacant = taken.is_some() && state.earliest().is_some() && !state.timekeeper;
        drop(state);
        self.wake(left + usize::from(post_is_vacant));
        if ended { Some(None) } else { taken.map(Some) }
    }

    fn end(&self, state: MutexGuard<'_, State<K>>) {
        let drained = state.is_drained();
        drop(state);
        self.wake.notify_waiters();
        if drained {
            self.drained.notify_waiters();
        }
    }
}

impl<K: WorkKey> QueueStats for Shared<K> {
    fn figures(&self) -> QueueFigures {
        let now = self.clock.instant();
        let (state, promoted) = self.lock();
        let running = || state.started().map(|started| now.saturating_duration_since(started).as_secs_f64());
        let figures = QueueFigures {
            depth: state.len(),
            adds: state.timing.adds,
            retries: state.timing.retries,
            waited: state.timing.waited.clone(),
            worked: state.timing.worked.clone(),
            unfinished: running().fold(0.0, |sum, seconds| sum + seconds),
            longest: running().fold(0.0, f64::max),
        };
        drop(state);
        self.wake(promoted);
        figures
    }
}

/// The one waiting taker that watches the clock.
struct Timekeeper<'a, K: WorkKey> {
    shared: &'a Shared<K>,
    resigned: bool,
}

impl<'a, K: WorkKey> Timekeeper<'a, K> {
    /// Takes the post if there is something to wait for and nobody has it.
    fn appoint(shared: &'a Shared<K>) -> Option<(Self, Instant)> {
        let mut state = shared.state.lock();
        let due = state.earliest().filter(|_| !state.timekeeper)?;
        state.timekeeper = true;
        Some((Self { shared, resigned: false }, due))
    }

    /// Leaves the post to look for a key. Whoever finds one wakes a successor; whoever does not takes
    /// the post again.
    fn resign(mut self) {
        self.resigned = true;
        self.shared.state.lock().timekeeper = false;
    }
}

impl<K: WorkKey> Drop for Timekeeper<'_, K> {
    /// Dropped in mid-wait: somebody else has to watch the clock.
    fn drop(&mut self) {
        if self.resigned {
            return;
        }
        let mut state = self.shared.state.lock();
        state.timekeeper = false;
        let vacant = state.earliest().is_some();
        drop(state);
        self.shared.wake(usize::from(vacant));
    }
}
