//! How the reconciles of a controller end.

use std::time::Duration;

use parking_lot::Mutex;

use super::histogram::{Histogram, RECONCILE_SECONDS};

/// The figures of one controller.
pub(crate) struct Reconciles {
    tally: Mutex<Tally>,
}

#[derive(Clone)]
pub(super) struct Tally {
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
}

/// How a reconcile ended, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
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
        let tally = Tally {
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
        };
        Self { tally: Mutex::new(tally) }
    }

    pub(crate) fn started(&self) {
        self.tally.lock().active += 1;
    }

    pub(crate) fn ended(&self, ended: Ended, took: Duration) {
        let mut tally = self.tally.lock();
        tally.active = tally.active.saturating_sub(1);
        tally.seconds.observe(took);
        tally.count(ended);
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }
}

impl Tally {
    fn count(&mut self, ended: Ended) {
        *match ended {
            Ended::Settled => &mut self.success,
            Ended::Requeue => &mut self.requeue,
            Ended::CheckAfter => &mut self.requeue_after,
            Ended::Failed | Ended::Terminal | Ended::Panicked | Ended::TimedOut => &mut self.error,
        } += 1;
        match ended {
            Ended::Terminal => self.terminal += 1,
            Ended::Panicked => self.panics += 1,
            Ended::TimedOut => self.timeouts += 1,
            _ => {}
        }
    }
}
