//! Retry delays that grow when the API server is overloaded.

use std::sync::Arc;
use std::time::Duration;

use super::AdaptiveLimits;
use crate::queue::RateLimiter;
use crate::reconcile::WorkKey;

/// A limiter that multiplies the delays of another one by the current factor.
pub(crate) struct Stretched<K> {
    pub(crate) inner: Arc<dyn RateLimiter<K>>,
    pub(crate) adaptive: AdaptiveLimits,
}

impl<K: WorkKey> RateLimiter<K> for Stretched<K> {
    fn when(&self, key: &K) -> Duration {
        self.inner.when(key).mul_f64(self.adaptive.pace().stretch)
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn retries(&self, key: &K) -> u32 {
        self.inner.retries(key)
    }
}
