//! The circuit breaker of a hook: closed while it works, open for a while after it failed, then half open.
//!
//! ```text
//!  closed ── failures in a row, of several parents ──► open ── after a while ──► one trial call
//!    ▲                                                  ▲                             │
//!    └────────────────── it succeeds ───────────────────┼─────────────────────────────┤
//!                                                       └────── it fails: longer ─────┘
//! ```
//!
//! A hook that fails for one parent only stays closed: that parent is retried less and less often anyway, and the others
//! go on.

use std::time::Duration;

use setpoint::Instant;

/// So many failures in a row open it, if they are of so many different parents.
const FAILURES: u32 = 5;
const PARENTS: usize = 3;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// The parents of these failures, at most three of them.
    parents: Vec<u64>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    lasts: Duration,
    /// A call has been let through to see whether the hook works again.
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

    /// Notes the end of a call. Returns whether it has opened or closed.
    pub(super) fn note(&mut self, works: bool, parent: u64, now: Instant) -> bool {
        if works {
            let was_open = self.open.is_some();
            *self = Self::default();
            return was_open;
        }
        self.failures = self.failures.saturating_add(1);
        if self.parents.len() < PARENTS && !self.parents.contains(&parent) {
            self.parents.push(parent);
        }
        match &mut self.open {
            Some(open) => {
                if open.trial {
                    open.lasts = (open.lasts * 2).min(LONGEST);
                    (open.until, open.trial) = (now + open.lasts, false);
                }
                false
            }
            None if self.failures >= FAILURES && self.parents.len() >= PARENTS => {
                self.open = Some(Open { until: now + FIRST, lasts: FIRST, trial: false });
                true
            }
            None => false,
        }
    }

    /// Notes that a trial call ended without a result: its future was dropped.
    pub(super) fn abandon(&mut self) {
        if let Some(open) = &mut self.open {
            open.trial = false;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
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
            assert!(!breaker.note(false, parent, start) && breaker.admit(start).is_ok());
        }
        assert!(breaker.note(false, 2, start) && breaker.is_open());
        assert!(breaker.admit(start).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn one_parent_alone_does_not_open_it_and_a_success_starts_again() {
        let (mut breaker, start) = (Breaker::default(), now());
        for _ in 0..100 {
            breaker.note(false, 1, start);
        }
        assert!(!breaker.is_open());
        breaker.note(false, 2, start);
        breaker.note(true, 3, start);
        breaker.note(false, 4, start);
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn one_trial_at_a_time_decides_and_pauses_grow() {
        let (mut breaker, mut at) = (Breaker::default(), now());
        (0..5).for_each(|parent| _ = breaker.note(false, parent, at));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(breaker.admit(at + Duration::from_secs(seconds) - Duration::from_millis(1)).is_err());
            at += Duration::from_secs(seconds);
            assert!(breaker.admit(at).is_ok() && breaker.admit(at).is_err(), "after {seconds} s");
            assert!(!breaker.note(false, 1, at));
        }
        at += LONGEST;
        assert!(breaker.admit(at).is_ok());
        breaker.abandon();
        assert!(breaker.admit(at).is_ok(), "another call may try");
        assert!(breaker.note(true, 1, at) && breaker.admit(at).is_ok() && !breaker.is_open());
    }
}
