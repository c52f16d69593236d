//! What this process has done that its cache may not show yet.
//!
//! What always holds: a pod is remembered as released until the cache shows it without its finalizer,
//! or gone; the version of a Job that was last written, until the cache shows it. Both are bounded by what
//! one step of each Job releases (500 pods), and forgotten with the Job.

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
    /// The pods of a Job that have been counted and whose finalizer is being removed.
    pub(super) fn release(&self, job: &Key, pods: impl IntoIterator<Item = Box<str>>) {
        self.released.lock().entry(job.clone()).or_default().extend(pods);
    }

    /// The cache shows that a pod is without its finalizer, or it never will.
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

    /// The API server's copy of a Job whose status has been written.
    pub(super) fn wrote(&self, job: &Object) {
        let written = Written { uid: job.meta().uid.clone(), revision: job.meta().revision() };
        self.written.lock().insert(job.key().clone(), written);
    }

    /// Whether a cached Job is older than what was written of it: what has been counted since shows
    /// neither in its status nor, once they are released, in its pods.
    pub(super) fn is_newer_than(&self, job: &Key, cached: &Metadata) -> bool {
        let written = self.written.lock();
        written.get(job).is_some_and(|last| last.uid == cached.uid && cached.revision() < last.revision)
    }

    /// The Job is gone, or another has its name.
    pub(super) fn forget(&self, job: &Key) {
        self.released.lock().remove(job);
        self.written.lock().remove(job);
    }
}
