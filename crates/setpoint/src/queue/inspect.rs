//! What a queue shows of itself: the state of its keys, and its metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use setpoint_clock::Instant;

use super::entry::Standing;
use super::{Priority, Queue, Shared};
use crate::metrics::{QueueMetrics, QueueStats};
use crate::reconcile::WorkKey;

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
    /// How many keys leave before this one, if nothing more urgent comes; `None` if it does not wait.
    pub position: Option<usize>,
    /// How urgent it is, while it is queued.
    pub priority: Priority,
    /// A worker is on it.
    pub processing: bool,
    /// Will be added then.
    pub delayed_until: Option<Instant>,
    /// How often it has failed since it last succeeded.
    pub retries: u32,
    /// Why the last try failed, if it did.
    pub last_error: Option<Arc<str>>,
}

impl<K: WorkKey> Queue<K> {
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
        let state = self.shared.core.look();
        let (standing, position) = (state.standing(key), state.position(key));
        drop(state);
        KeyState { position, ..self.describe(key, standing) }
    }

    /// Every key that waits, is worked on, is delayed or has failed, in key order.
    pub fn states(&self) -> BTreeMap<K, KeyState> {
        let state = self.shared.core.look();
        let mut standings: BTreeMap<K, Standing> = state.standings().into_iter().collect();
        let positions = state.positions();
        drop(state);
        for key in self.shared.failures.lock().keys() {
            standings.entry(key.clone()).or_default();
        }
        let described = standings.into_iter().map(|(key, standing)| {
            let position = positions.get(&key).copied();
            let state = KeyState { position, ..self.describe(&key, standing) };
            (key, state)
        });
        described.collect()
    }

    fn describe(&self, key: &K, standing: Standing) -> KeyState {
        KeyState {
            queued: standing.queued,
            position: None,
            priority: standing.priority,
            processing: standing.processing,
            delayed_until: standing.due,
            retries: self.retries(key),
            last_error: self.shared.failures.lock().get(key).map(|failure| failure.error.clone()),
        }
    }
}

impl<K: WorkKey> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.core.look();
        f.debug_struct("Queue")
            .field("name", &self.shared.name)
            .field("ready", &state.len())
            .field("processing", &state.processing())
            .field("delayed", &state.delayed())
            .finish()
    }
}

impl<K: WorkKey> QueueStats for Shared<K> {
    fn metrics(&self) -> QueueMetrics {
        let now = self.clock.instant();
        self.core.with(
            || now,
            |state| {
                let running =
                    || state.started().map(|started| now.saturating_duration_since(started).as_secs_f64());
                QueueMetrics {
                    depth: state.len(),
                    adds: state.timing.adds,
                    retries: state.timing.retries,
                    waited: state.timing.waited.clone(),
                    worked: state.timing.worked.clone(),
                    unfinished: running().fold(0.0, |sum, seconds| sum + seconds),
                    longest: running().fold(0.0, f64::max),
                }
            },
        )
    }
}
