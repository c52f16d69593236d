//! Reads the input of an assessment from the caches. No client.

use std::collections::BTreeSet;

use setpoint::object::DecodeError;
use setpoint::{Cached, Key, Lister};

use super::Tracker;
use super::pod::JobPod;
use super::view::Job;
use crate::workload::dependents::Dependents;

pub(super) struct Observer {
    pub(super) jobs: Lister<Job>,
    pub(super) pods: Dependents<JobPod>,
    pub(super) tracker: Tracker,
}

pub(super) struct Observed {
    /// The pods that the Job controls, and the orphans of its namespace.
    pub(super) pods: Vec<Cached<JobPod>>,
    /// The pods among them that have been counted.
    pub(super) released: BTreeSet<Box<str>>,
    /// Whether the cache shows all earlier creates and deletes of this Job.
    pub(super) caught_up: bool,
}

impl Observer {
    pub(super) fn job(&self, key: &Key) -> Result<Option<Cached<Job>>, DecodeError> {
        self.jobs.get(key)
    }

    pub(super) fn observe(&self, job: &Cached<Job>) -> Result<Observed, DecodeError> {
        // Check this before listing pods: events observed after the list must not count for it.
        let caught_up = self.tracker.expectations.satisfied(job.key());
        let released = self.tracker.memory.released(job.key());
        Ok(Observed { pods: self.pods.claimable_by(job.meta())?, released, caught_up })
    }
}
