//! Stage 7: the work queue.
//!
//! What always holds:
//! - a key is in the queue at most once, and worked on by at most one worker at a time;
//! - a key added while it is worked on is worked on again afterwards: nothing is lost;
//! - keys are handed out in the order they were added;
//! - after a shutdown nothing is added; what is being worked on can finish.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::Runtime;
use crate::reconcile::WorkKey;

/// A queue of keys: plain, delaying and rate-limiting in one. Cheap to clone.
pub struct Queue<K> {
    _key: PhantomData<fn() -> K>,
}

/// How long a failed key waits before its next try.
pub trait RateLimiter<K>: Send + Sync + 'static {
    /// Counts a failure and says how long to wait.
    fn when(&self, key: &K) -> Duration;
    /// Forgets the failures of a key.
    fn forget(&self, key: &K);
    fn retries(&self, key: &K) -> u32;
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        todo!()
    }
}

impl<K: WorkKey> Queue<K> {
    /// A queue with the default rate limiter. `name` is its label in metrics.
    pub fn new(name: &'static str, runtime: &Runtime) -> Self {
        let _ = (name, runtime);
        todo!()
    }

    pub fn with_rate_limiter(
        name: &'static str,
        runtime: &Runtime,
        limiter: Arc<dyn RateLimiter<K>>,
    ) -> Self {
        let _ = (name, runtime, limiter);
        todo!()
    }

    pub fn add(&self, key: K) {
        let _ = key;
        todo!()
    }

    /// Adds the key once `delay` has passed; of several delays for a key the earliest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        let _ = (key, delay);
        todo!()
    }

    /// Adds the key after the delay of its rate limiter.
    pub fn add_rate_limited(&self, key: K) {
        let _ = key;
        todo!()
    }

    /// The key's work succeeded: its next failure is its first.
    pub fn forget(&self, key: &K) {
        let _ = key;
        todo!()
    }

    pub fn retries(&self, key: &K) -> u32 {
        let _ = key;
        todo!()
    }

    /// Waits for a key to work on; `None` once the queue is shut down and empty.
    pub async fn take(&self) -> Option<K> {
        todo!()
    }

    /// The work on a taken key has ended.
    pub fn done(&self, key: &K) {
        let _ = key;
        todo!()
    }

    pub fn len(&self) -> usize {
        todo!()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn shut_down(&self) {
        todo!()
    }
}
