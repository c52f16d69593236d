//! Restarts all controllers at run time, for hook developers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

type Follower = Box<dyn Fn() + Send + Sync>;

/// Restarts controllers, so that hooks are called again for all parents. Cheap to clone.
#[derive(Clone, Default)]
pub struct Reload(Arc<Inner>);

#[derive(Default)]
struct Inner {
    generation: AtomicU64,
    /// The restart function of the current manager.
    follower: Mutex<Option<Follower>>,
}

impl Reload {
    /// Restarts all controllers.
    pub fn all(&self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(follower) = &*self.0.follower.lock() {
            follower();
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    pub(crate) fn follow(&self, follower: Follower) {
        *self.0.follower.lock() = Some(follower);
    }
}
