//! Maps events to keys of Jobs and leftover pods.

use setpoint::{Event, Key, Object, Queue};

use super::Tracker;
use super::pod::JobPod;
use super::view::{Job, TRACKING};
use crate::workload::dependents::Dependents;
use crate::workload::owners::Owners;

pub(super) struct Wake {
    pub(super) queue: Queue<Key>,
    /// Tracked pods that no Job will count any more.
    pub(super) orphans: Queue<Key>,
    pub(super) tracker: Tracker,
    pub(super) jobs: Owners<Job>,
    pub(super) pods: Dependents<JobPod>,
}

impl Wake {
    pub(super) fn job_changed(&self, event: &Event) {
        match event {
            Event::Added { object, .. } => self.job_added(object),
            Event::Updated { old, new } if old.meta().uid != new.meta().uid => {
                self.job_deleted(old);
                self.job_added(new);
            }
            Event::Updated { old, new } => self.job_updated(old, new),
            Event::Deleted { last, .. } => self.job_deleted(last),
        }
    }

    fn job_added(&self, job: &Object) {
        self.queue.add(job.key().clone());
        let manager = job.view::<Job>().ok().and_then(Job::other_manager);
        if let Some(manager) = manager.filter(|_| self.tracker.respects_managed_by) {
            self.tracker.metrics.count_externally_managed(manager);
        }
    }

    fn job_updated(&self, old: &Object, new: &Object) {
        let key = new.key();
        if new.view::<Job>().is_ok_and(Job::is_finished) {
            self.tracker.records.forget(key);
            return self.enqueue_orphans(new);
        }
        if old.meta().generation == new.meta().generation {
            self.enqueue(key);
        } else {
            self.queue.add(key.clone());
        }
    }

    fn job_deleted(&self, job: &Object) {
        self.tracker.expectations.forget(job.key());
        self.tracker.memory.forget(job.key());
        self.tracker.records.forget(job.key());
        self.enqueue_orphans(job);
        self.queue.add(job.key().clone());
    }

    pub(super) fn pod_changed(&self, event: &Event) {
        self.tracker.metrics.pod_changed(event);
        match event {
            Event::Added { object, .. } => self.pod_added(object),
            Event::Updated { old, new } if old.meta().uid != new.meta().uid => {
                self.pod_deleted(old, true);
                self.pod_added(new);
            }
            Event::Updated { old, new } if !old.same_version(new) => self.pod_updated(old, new),
            Event::Updated { .. } => {}
            Event::Deleted { last, .. } => self.pod_deleted(last, true),
        }
    }

    fn pod_added(&self, pod: &Object) {
        if pod.meta().is_being_deleted() {
            // It already existed and was terminating, so it is not one of our creations.
            return self.pod_deleted(pod, false);
        }
        if pod.meta().controller().is_none() {
            return self.orphan_changed(pod, true);
        }
        if let Some(job) = self.jobs.of(pod) {
            self.tracker.expectations.creation_observed(job.key());
            self.enqueue(job.key());
        }
    }

    fn pod_updated(&self, old: &Object, new: &Object) {
        if new.meta().is_being_deleted() {
            // A Job replaces a pod when it starts terminating, not when it is gone.
            return self.pod_deleted(new, false);
        }
        let handed_over = old.meta().controller() != new.meta().controller();
        for state in handed_over.then_some(old).into_iter().chain([new]) {
            if let Some(job) = self.jobs.of(state) {
                if !new.meta().has_finalizer(TRACKING) {
                    self.tracker.memory.release_observed(job.key(), &new.meta().uid);
                }
                self.enqueue(job.key());
            }
        }
        if new.meta().controller().is_none() {
            self.orphan_changed(new, handed_over || old.meta().labels != new.meta().labels);
        }
    }

    /// Handles a pod that is deleted or terminating.
    fn pod_deleted(&self, pod: &Object, gone: bool) {
        let tracked = pod.meta().has_finalizer(TRACKING);
        match self.jobs.of(pod).filter(|job| !job.is_finished()) {
            Some(job) => {
                self.tracker.expectations.deletion_observed(job.key(), &pod.meta().uid);
                if gone || !tracked {
                    self.tracker.memory.release_observed(job.key(), &pod.meta().uid);
                }
                self.enqueue(job.key());
            }
            None if tracked && has_no_other_controller(pod) => self.orphans.add(pod.key().clone()),
            None => {}
        }
    }

    fn orphan_changed(&self, pod: &Object, adoptable: bool) {
        if pod.meta().has_finalizer(TRACKING) {
            self.orphans.add(pod.key().clone());
        }
        if adoptable {
            self.jobs.selecting(pod).iter().for_each(|job| self.enqueue(job));
        }
    }

    fn enqueue_orphans(&self, job: &Object) {
        let pods = self.pods.controlled_by(&job.meta().uid).unwrap_or_default();
        for pod in pods.iter().filter(|pod| pod.meta().has_finalizer(TRACKING)) {
            self.orphans.add(pod.key().clone());
        }
    }

    /// Enqueues a Job with a delay that batches rapid changes.
    fn enqueue(&self, job: &Key) {
        self.queue.add_after(job.clone(), self.tracker.throttle.delay(job));
    }
}

/// Whether no other kind of controller owns the pod.
fn has_no_other_controller(pod: &Object) -> bool {
    pod.meta().controller().is_none_or(|owner| &*owner.kind == "Job")
}
