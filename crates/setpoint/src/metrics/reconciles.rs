//! Metrics of reconciles.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::histogram::{Histogram, RECONCILE_SECONDS, REQUEST_SECONDS};

/// The metrics of one controller.
pub(crate) struct Reconciles {
    tally: Mutex<Counters>,
}

#[derive(Clone)]
pub(super) struct Counters {
    pub(super) success: u64,
    pub(super) error: u64,
    pub(super) requeue: u64,
    pub(super) requeue_after: u64,
    pub(super) terminal: u64,
    pub(super) panics: u64,
    pub(super) timeouts: u64,
    pub(super) active: usize,
    pub(super) workers: usize,
    pub(super) seconds: Histogram,
    /// Failures by category: a dozen values.
    pub(super) failures: BTreeMap<&'static str, u64>,
    pub(super) given_up: u64,
    /// The time from a key's first failure to its next success.
    pub(super) recoveries: Histogram,
    /// Keys delayed because a cache did not show their last writes.
    pub(super) postponed: u64,
}

/// The outcome of a reconcile, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    Settled,
    Requeue,
    CheckAfter,
    Failed,
    Terminal,
    Panicked,
    TimedOut,
}

impl Reconciles {
    pub(crate) fn new(workers: usize) -> Self {
        let tally = Counters {
            success: 0,
            error: 0,
            requeue: 0,
            requeue_after: 0,
            terminal: 0,
            panics: 0,
            timeouts: 0,
            active: 0,
            workers,
            seconds: Histogram::new(RECONCILE_SECONDS),
            failures: BTreeMap::new(),
            given_up: 0,
            recoveries: Histogram::new(REQUEST_SECONDS),
            postponed: 0,
        };
        Self { tally: Mutex::new(tally) }
    }

    pub(crate) fn started(&self) {
        self.tally.lock().active += 1;
    }

    pub(crate) fn ended(&self, ended: ReconcileResult, took: Duration) {
        let mut tally = self.tally.lock();
        tally.active = tally.active.saturating_sub(1);
        tally.seconds.observe(took);
        tally.count(ended);
    }

    /// Counts a failure. `given_up` means that it is not retried before something changes.
    pub(crate) fn failed(&self, category: &'static str, given_up: bool) {
        let mut tally = self.tally.lock();
        *tally.failures.entry(category).or_default() += 1;
        tally.given_up += u64::from(given_up);
    }

    /// Records how long a key had been failing when it succeeded.
    pub(crate) fn recovered(&self, failing: Duration) {
        self.tally.lock().recoveries.observe(failing);
    }

    pub(crate) fn postponed(&self) {
        self.tally.lock().postponed += 1;
    }

    pub(super) fn tally(&self) -> Counters {
        self.tally.lock().clone()
    }
}

impl Counters {
    fn count(&mut self, ended: ReconcileResult) {
        *match ended {
            ReconcileResult::Settled => &mut self.success,
            ReconcileResult::Requeue => &mut self.requeue,
            ReconcileResult::CheckAfter => &mut self.requeue_after,
            ReconcileResult::Failed
            | ReconcileResult::Terminal
            | ReconcileResult::Panicked
            | ReconcileResult::TimedOut => &mut self.error,
        } += 1;
        match ended {
            ReconcileResult::Terminal => self.terminal += 1,
            ReconcileResult::Panicked => self.panics += 1,
            ReconcileResult::TimedOut => self.timeouts += 1,
            _ => {}
        }
    }
}
