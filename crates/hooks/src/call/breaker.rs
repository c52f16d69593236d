//! The circuit breaker of a hook: closed while it responds, open for a while after it has not, then half open.
//!
//! ```text
//!  closed ── no answers in a row, for several parents ──► open ── after a while ──► one trial call
//!    ▲                                                     ▲                            │
//!    └──────────────────── it answers ─────────────────────┼────────────────────────────┤
//!                                                          └──── no answer: longer ─────┘
//! ```
//!
//! If a hook responds with errors, the breaker stays closed: maybe only some parents cause them, and the others must
//! not wait. It also stays closed if a hook fails for a single parent, which is retried with backoff anyway.

use std::time::Duration;

use setpoint::Instant;

/// The breaker opens after this many failures in a row, for this many different parents.
const FAILURES: u32 = 5;
const PARENTS: usize = 3;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Succeeded,
    /// The hook responded with an error, or its response is invalid.
    Failed,
    NoAnswer,
}

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// The parents that these failures are for, at most three.
    parents: Vec<u64>,
    is_failing: bool,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    lasts: Duration,
    /// A trial call is in progress.
    trial: bool,
}

impl Breaker {
    /// Returns whether a call may be made now, or how long to wait.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match &mut self.open {
            None => Ok(()),
            Some(open) if now >= open.until && !open.trial => {
                open.trial = true;
                Ok(())
            }
            Some(open) if open.trial => Err(open.lasts),
            Some(open) => Err(open.until.saturating_duration_since(now)),
        }
    }

    /// Records the result of a call. Returns whether the health of the hook has changed.
    pub(super) fn note(&mut self, end: End, parent: u64, now: Instant) -> bool {
        let before = (self.is_failing, self.is_open());
        match end {
            End::Succeeded => *self = Self::default(),
            End::Failed => {
                self.count(parent);
                self.open = None;
            }
            End::NoAnswer => {
                self.count(parent);
                self.pause(now);
            }
        }
        before != (self.is_failing, self.is_open())
    }

    fn count(&mut self, parent: u64) {
        self.failures = self.failures.saturating_add(1);
        if self.parents.len() < PARENTS && !self.parents.contains(&parent) {
            self.parents.push(parent);
        }
        self.is_failing |= self.failures >= FAILURES && self.parents.len() >= PARENTS;
    }

    fn pause(&mut self, now: Instant) {
        match &mut self.open {
            Some(open) if open.trial => {
                open.lasts = (open.lasts * 2).min(LONGEST);
                (open.until, open.trial) = (now + open.lasts, false);
            }
            None if self.is_failing => {
                self.open = Some(Open { until: now + FIRST, lasts: FIRST, trial: false });
            }
            _ => {}
        }
    }

    /// Records that a trial call ended without a result, because its future was dropped.
    pub(super) fn abandon(&mut self) {
        if let Some(open) = &mut self.open {
            open.trial = false;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing
    }
}

#[cfg(test)]
mod tests {
    use setpoint::Clock;

    use super::*;

    fn now() -> Instant {
        Clock::system().instant()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_several_parents_open_it() {
        let (mut breaker, start) = (Breaker::default(), now());
        for parent in [1, 2, 3, 1] {
            assert!(!breaker.note(End::NoAnswer, parent, start) && breaker.admit(start).is_ok());
        }
        assert!(breaker.note(End::NoAnswer, 2, start) && breaker.is_open());
        assert!(breaker.admit(start).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_answers_with_errors_is_called_on() {
        let (mut breaker, start) = (Breaker::default(), now());
        for parent in [1, 2, 3, 1, 2, 3, 1] {
            breaker.note(End::Failed, parent, start);
            assert!(breaker.admit(start).is_ok());
        }
        assert!(breaker.is_failing() && !breaker.is_open());
        assert!(breaker.note(End::NoAnswer, 1, start) && breaker.is_open());
        assert!(breaker.note(End::Failed, 1, start) && breaker.admit(start).is_ok());
        assert!(breaker.note(End::Succeeded, 1, start) && !breaker.is_failing());
    }

    #[tokio::test(start_paused = true)]
    async fn one_parent_alone_does_not_open_it_and_a_success_starts_again() {
        let (mut breaker, start) = (Breaker::default(), now());
        for _ in 0..100 {
            breaker.note(End::NoAnswer, 1, start);
        }
        assert!(!breaker.is_open());
        breaker.note(End::NoAnswer, 2, start);
        breaker.note(End::Succeeded, 3, start);
        breaker.note(End::NoAnswer, 4, start);
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn one_trial_at_a_time_decides_and_pauses_grow() {
        let (mut breaker, mut at) = (Breaker::default(), now());
        (0..5).for_each(|parent| _ = breaker.note(End::NoAnswer, parent, at));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(breaker.admit(at + Duration::from_secs(seconds) - Duration::from_millis(1)).is_err());
            at += Duration::from_secs(seconds);
            assert!(breaker.admit(at).is_ok() && breaker.admit(at).is_err(), "after {seconds} s");
            assert!(!breaker.note(End::NoAnswer, 1, at));
        }
        at += LONGEST;
        assert!(breaker.admit(at).is_ok());
        breaker.abandon();
        assert!(breaker.admit(at).is_ok(), "another call may try");
        assert!(breaker.note(End::Succeeded, 1, at) && breaker.admit(at).is_ok() && !breaker.is_open());
    }
}
