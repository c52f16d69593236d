//! Creates and deletes that a controller has asked for and not yet seen in its cache.
//!
//! Until they are met, or five minutes have passed, the cache is known to be behind and the
//! controller neither creates nor deletes anything more for that key.

use crate::Clock;
use crate::reconcile::WorkKey;

/// Outstanding creates (counted) and deletes (by what is deleted) per key.
pub struct Expectations<K> {
    #[allow(dead_code)]
    clock: Clock,
    _key: std::marker::PhantomData<fn() -> K>,
}

impl<K: WorkKey> Expectations<K> {
    pub fn new(clock: Clock) -> Self {
        Self { clock, _key: std::marker::PhantomData }
    }

    /// Replaces the expectations of a key: `count` creates.
    pub fn expect_creations(&self, key: &K, count: usize) {
        let _ = (key, count);
        todo!()
    }

    /// Replaces the expectations of a key: these deletes, by any unique name of what is deleted.
    pub fn expect_deletions(&self, key: &K, deleted: impl IntoIterator<Item = String>) {
        let _ = (key, deleted.into_iter().count());
        todo!()
    }

    pub fn creation_observed(&self, key: &K) {
        let _ = key;
        todo!()
    }

    pub fn deletion_observed(&self, key: &K, deleted: &str) {
        let _ = (key, deleted);
        todo!()
    }

    /// Whether the cache has caught up with the key's own writes, or has had its time.
    pub fn satisfied(&self, key: &K) -> bool {
        let _ = key;
        todo!()
    }

    /// The key is gone.
    pub fn forget(&self, key: &K) {
        let _ = key;
        todo!()
    }
}
