//! Decides on the number of workers and the request rate, based on recent calls. Pure functions.
//!
//! ```text
//!  responses get slower      ─► lower the request rate       (to 0.7, immediately)
//!  calls fail                ─► lower the request rate, lengthen retry delays
//!  backlog, server is well   ─► more workers                 (half as many again)
//!  server is well            ─► rate, delays and idle workers return to normal, step by step
//! ```
//!
//! Rates drop fast and recover slowly, so that many processes that overload an API server together also converge
//! together. The number of workers never grows while the API server is overloaded, however long the backlog.

/// Responses this many times slower than usual mean that the API server is busy.
const SLOW: f64 = 2.0;
/// Nothing below this counts as slow. A response that usually takes a millisecond may take 50 ms if either side is
/// briefly busy.
const NEVER_SLOW: f64 = 0.05;
/// This share of failing calls means that something is wrong.
const FAILING: f64 = 0.1;
/// The factor by which the rate drops, and the share of the configured rate by which it recovers.
const DOWN: f64 = 0.7;
const UP: f64 = 0.1;
/// The minimum share of the configured rate, so that a recovery can be noticed.
const MIN_RATE: f64 = 0.1;
/// The maximum factor for retry delays.
const MAX_STRETCH: f64 = 8.0;

/// The calls since the last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calls {
    /// The number of calls that were answered or timed out.
    pub made: u64,
    /// The number of calls that got no response, or failed because the API server was overloaded.
    pub failed: u64,
    /// The average response time in seconds.
    pub seconds: f64,
    /// The usual response time in seconds.
    pub usual_seconds: f64,
}

/// The backlog of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The number of keys waiting for a worker.
    pub waiting: usize,
    /// The current number of workers.
    pub workers: usize,
    /// The configured number of workers.
    pub configured: usize,
    /// The maximum number of workers.
    pub most: usize,
}

/// The current request rate and retry delay factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Requests per second.
    pub rate: f64,
    /// The factor for retry delays.
    pub stretch: f64,
}

/// The condition of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Response times are as usual.
    Well,
    /// Responses are slow.
    Slow,
    /// Calls fail.
    Failing,
}

impl Condition {
    /// Derives the condition from recent calls.
    pub fn of(calls: &Calls) -> Self {
        let slow_from = (calls.usual_seconds * SLOW).max(NEVER_SLOW);
        if calls.made == 0 {
            Self::Well
        } else if calls.failed as f64 >= calls.made as f64 * FAILING {
            Self::Failing
        } else if calls.seconds > slow_from {
            Self::Slow
        } else {
            Self::Well
        }
    }

    /// Returns the name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Slow => "slow",
            Self::Failing => "failing",
        }
    }
}

/// Returns the new pace. `configured` is the rate under normal conditions.
pub fn pace(condition: Condition, now: Pace, configured: f64) -> Pace {
    let rate = match condition {
        Condition::Well => now.rate + configured * UP,
        Condition::Slow | Condition::Failing => now.rate * DOWN,
    };
    let stretch = match condition {
        Condition::Failing => now.stretch * 2.0,
        Condition::Slow => now.stretch,
        Condition::Well => now.stretch / 2.0,
    };
    Pace { rate: rate.clamp(configured * MIN_RATE, configured), stretch: stretch.clamp(1.0, MAX_STRETCH) }
}

/// Returns the new number of workers.
pub fn workers(condition: Condition, backlog: &Backlog) -> usize {
    let Backlog { waiting, workers, configured, most } = *backlog;
    let wanted = match condition {
        Condition::Failing => workers / 2,
        Condition::Slow => workers,
        // More than two waiting keys per worker: add half as many workers again.
        Condition::Well if waiting > workers * 2 => workers + workers.div_ceil(2),
        // No backlog: go a quarter of the way back to the configured number.
        Condition::Well if waiting == 0 && workers > configured => {
            workers - (workers - configured).div_ceil(4)
        }
        Condition::Well => workers.max(configured.min(workers + 1)),
    };
    wanted.clamp(1, most.max(1))
}
