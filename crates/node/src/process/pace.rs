//! The time of a process.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::Clock;

use super::Stop;

/// Real time, or time computed from sleeps.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    Real(Clock),
    Reckoned(Arc<Reckoning>),
}

/// In real time, a process pauses regularly, so that an endless loop takes a tenth of a core.
const STEPS_AT_ONCE: u64 = 1000;
const REST: Duration = Duration::from_millis(10);

/// The maximum number of consecutive pauses, after a long step.
const MAX_RESTS: u64 = 100;

/// A sleep of more than a year never ends.
const FOREVER: Duration = Duration::from_secs(366 * 86400);

/// The maximum total length of expanded words in a run in computed time, which also bounds its files and output: a
/// variable can double with every line.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// Time computed from a run's own sleeps.
#[derive(Debug)]
pub(crate) struct Reckoning {
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    elapsed: Duration,
    /// Where time stops for now.
    horizon: Duration,
    /// Until when it sleeps.
    asleep: Option<Duration>,
    /// The remaining steps in total, and until the run has to yield.
    steps: u64,
    burst: u64,
    /// The total length of expanded words.
    read: usize,
}

impl Reckoning {
    /// Starts a run with a limit on steps. Its time ends at the horizon.
    pub(crate) fn new(since: Timestamp, horizon: Duration, steps: u64) -> Arc<Self> {
        let state = State { elapsed: Duration::ZERO, horizon, asleep: None, steps, burst: steps, read: 0 };
        Arc::new(Self { since, state: Mutex::new(state) })
    }

    /// Starts a run whose time does not end.
    pub(crate) fn endless(since: Timestamp, steps: u64) -> Arc<Self> {
        Self::new(since, Duration::MAX, steps)
    }

    /// Returns the time of the run. The end of the calendar is the last one.
    pub(crate) fn now(&self) -> Timestamp {
        self.since.saturating_add(self.elapsed()).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.state.lock().elapsed
    }

    /// Returns when the run continues, if it sleeps.
    pub(crate) fn wakes_after(&self) -> Option<Duration> {
        self.state.lock().asleep
    }

    /// Moves the horizon, and sets the number of steps before it must be polled again.
    pub(crate) fn extend(&self, horizon: Duration, burst: u64) {
        let mut state = self.state.lock();
        state.horizon = state.horizon.max(horizon);
        state.burst = burst;
    }

    /// Whether the run is only waiting to be polled again.
    pub(crate) fn is_in_the_middle(&self) -> bool {
        let state = self.state.lock();
        state.burst == 0 && state.steps > 0
    }
}

impl State {
    fn step(&mut self, count: u64) -> Poll<Result<(), Stop>> {
        if self.steps < count {
            self.steps = 0;
            return Poll::Ready(Err(Stop::Unknown));
        }
        if self.burst == 0 {
            return Poll::Pending;
        }
        self.steps -= count;
        self.burst = self.burst.saturating_sub(count);
        Poll::Ready(Ok(()))
    }
}

impl Pace {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Real(clock) => clock.now(),
            Self::Reckoned(reckoning) => reckoning.now(),
        }
    }

    pub(crate) async fn sleep(&self, duration: Duration) -> Result<(), Stop> {
        let reckoning = match self {
            Self::Real(clock) => {
                clock.sleep(duration.min(FOREVER)).await;
                return Ok(());
            }
            Self::Reckoned(reckoning) => reckoning,
        };
        let until = reckoning.elapsed().checked_add(duration).filter(|until| *until < FOREVER);
        let until = until.ok_or(Stop::Forever)?;
        // The code that extends the horizon polls the run.
        poll_fn(|_| {
            let mut state = reckoning.state.lock();
            let is_due = state.horizon >= until;
            state.asleep = (!is_due).then_some(until);
            if !is_due {
                return Poll::Pending;
            }
            state.elapsed = until;
            Poll::Ready(())
        })
        .await;
        Ok(())
    }

    /// Waits forever.
    pub(crate) async fn wait_forever(&self) -> Stop {
        match self {
            Self::Real(_) => std::future::pending().await,
            Self::Reckoned(_) => Stop::Forever,
        }
    }

    /// Counts steps. `steps` counts those of a process in real time.
    pub(crate) async fn step(&self, steps: &mut u64, count: u64) -> Result<(), Stop> {
        match self {
            Self::Real(clock) => {
                let bursts = *steps / STEPS_AT_ONCE;
                *steps = steps.saturating_add(count);
                let rests = (*steps / STEPS_AT_ONCE - bursts).min(MAX_RESTS);
                if rests > 0 {
                    clock.sleep(REST * u32::try_from(rests).unwrap_or(1)).await;
                }
            }
            Self::Reckoned(reckoning) => {
                poll_fn(|_| reckoning.state.lock().step(count)).await?;
            }
        }
        Ok(())
    }

    /// Counts expanded text.
    pub(crate) fn read(&self, length: usize) -> Result<(), Stop> {
        let is_too_long = match self {
            Self::Real(_) => length > MAX_TEXT,
            Self::Reckoned(reckoning) => {
                let mut state = reckoning.state.lock();
                state.read = state.read.saturating_add(length);
                state.read > MAX_TEXT
            }
        };
        if is_too_long { Err(Stop::Unknown) } else { Ok(()) }
    }
}
