//! How much memory files may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on bytes, which may be part of a larger one. What is taken must be given back.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: usize,
    used: AtomicUsize,
    whole: Option<Arc<Self>>,
}

impl Quota {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), whole: None })
    }

    /// Returns a limit within this one.
    pub(crate) fn part(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), whole: Some(self.clone()) })
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes bytes, unless that exceeds a limit.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
            return false;
        }
        let fits = self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}
