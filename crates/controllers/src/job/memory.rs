//! Recent writes that the cache may not show yet.
//!
//! Invariants: a pod is remembered as released until the cache shows it deleted or without its finalizer; the last
//! written version of a Job until the cache shows it. Both are bounded by what one sync of each Job releases (500
//! pods), and are forgotten with the Job.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use setpoint::{Key, Metadata, Object};

#[derive(Default)]
pub(super) struct Memory {
    released: Mutex<BTreeMap<Key, BTreeSet<Box<str>>>>,
    written: Mutex<BTreeMap<Key, Written>>,
}

/// A version of a Job.
struct Written {
    uid: Box<str>,
    revision: u64,
}

impl Memory {
    /// Records pods of a Job that are counted and whose finalizer is being removed.
    pub(super) fn release(&self, job: &Key, pods: impl IntoIterator<Item = Box<str>>) {
        self.released.lock().entry(job.clone()).or_default().extend(pods);
    }

    /// Forgets a released pod after the cache shows it without its finalizer, or never will.
    pub(super) fn release_observed(&self, job: &Key, pod: &str) {
        let mut released = self.released.lock();
        if let Some(pods) = released.get_mut(job) {
            pods.remove(pod);
            if pods.is_empty() {
                released.remove(job);
            }
        }
    }

    pub(super) fn released(&self, job: &Key) -> BTreeSet<Box<str>> {
        self.released.lock().get(job).cloned().unwrap_or_default()
    }

    /// Records the written version of a Job.
    pub(super) fn record_write(&self, job: &Object) {
        let written = Written { uid: job.meta().uid.clone(), revision: job.meta().revision() };
        self.written.lock().insert(job.key().clone(), written);
    }

    /// Whether a cached Job is older than the last write. Pods counted since then would be missing from its status and,
    /// once released, from its pods.
    pub(super) fn is_newer_than(&self, job: &Key, cached: &Metadata) -> bool {
        let written = self.written.lock();
        written.get(job).is_some_and(|last| last.uid == cached.uid && cached.revision() < last.revision)
    }

    /// Forgets a Job that is deleted or recreated.
    pub(super) fn forget(&self, job: &Key) {
        self.released.lock().remove(job);
        self.written.lock().remove(job);
    }
}
