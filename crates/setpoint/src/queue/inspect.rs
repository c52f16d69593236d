//! Inspection: the state of each key, and the queue's metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use setpoint_clock::Instant;

use super::entry::KeySnapshot;
use super::{Inner, Priority, Queue};
use crate::metrics::{QueueMetrics, QueueStats};
use crate::reconcile::WorkKey;

/// The state of a key in a queue.
///
/// ```
/// use setpoint::queue::KeyState;
/// let unknown = KeyState::default();
/// assert!(!unknown.queued && !unknown.processing && unknown.retries == 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// Waits for a worker or, while `processing`, for the current reconcile to end.
    pub queued: bool,
    /// How many keys are ahead of this one, or `None` if it is not waiting. Keys with a higher priority may still
    /// overtake it.
    pub position: Option<usize>,
    /// The priority, while queued.
    pub priority: Priority,
    /// A worker is processing it.
    pub processing: bool,
    /// When a delayed key will be added.
    pub delayed_until: Option<Instant>,
    /// The number of failures since the last success.
    pub retries: u32,
    /// The error of the last attempt, if it failed.
    pub last_error: Option<Arc<str>>,
}

impl<K: WorkKey> Queue<K> {
    /// Returns the state of a key.
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
        let state = self.shared.core.lock();
        let (snapshot, position) = (state.snapshot(key), state.position(key));
        drop(state);
        KeyState { position, ..self.describe(key, snapshot) }
    }

    /// Returns the state of every key that is queued, processed, delayed or failing, in key order.
    pub fn states(&self) -> BTreeMap<K, KeyState> {
        let state = self.shared.core.lock();
        let mut snapshots: BTreeMap<K, KeySnapshot> = state.snapshots().into_iter().collect();
        let positions = state.positions();
        drop(state);
        for key in self.shared.failures.lock().keys() {
            snapshots.entry(key.clone()).or_default();
        }
        let described = snapshots.into_iter().map(|(key, snapshot)| {
            let position = positions.get(&key).copied();
            let state = KeyState { position, ..self.describe(&key, snapshot) };
            (key, state)
        });
        described.collect()
    }

    fn describe(&self, key: &K, snapshot: KeySnapshot) -> KeyState {
        KeyState {
            queued: snapshot.queued,
            position: None,
            priority: snapshot.priority,
            processing: snapshot.processing,
            delayed_until: snapshot.due,
            retries: self.retries(key),
            last_error: self.shared.failures.lock().get(key).map(|failure| failure.error.clone()),
        }
    }
}

impl<K: WorkKey> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.core.lock();
        f.debug_struct("Queue")
            .field("name", &self.shared.name)
            .field("ready", &state.len())
            .field("processing", &state.processing())
            .field("delayed", &state.delayed())
            .finish()
    }
}

impl<K: WorkKey> QueueStats for Inner<K> {
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
