//! How many requests and workers there should be, given how things go. Pure.
//!
//! ```text
//!  answers get slower        ─► fewer requests a second      (0.7 times, at once)
//!  calls fail                ─► fewer requests, longer waits before retries
//!  keys pile up, all is well ─► more workers                 (half as many again)
//!  all is well               ─► requests, waits and idle workers go back where they were, step by step
//! ```
//!
//! Down fast and up slowly, so that many processes which overload an API server together find its measure
//! together. An overloaded API server is never answered with more workers, however much waits.

/// Answers this many times slower than usual mean that the API server is busy.
const SLOW: f64 = 2.0;
/// Below this nothing is slow: 50 ms is what one busy moment of either side makes of a millisecond.
const NEVER_SLOW: f64 = 0.05;
/// This share of calls failing means that something is wrong.
const FAILING: f64 = 0.1;
/// The factor by which requests go down, and the share of the configured rate by which they come back.
const DOWN: f64 = 0.7;
const UP: f64 = 0.1;
/// However bad things are, this share of the configured rate is left: somebody has to notice that they got better.
const LEAST_RATE: f64 = 0.1;
/// The most that waits before retries are stretched.
const MOST_STRETCH: f64 = 8.0;

/// How calls went since the last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calls {
    /// How many were answered or given up.
    pub made: u64,
    /// How many of them failed for want of an answer or because the API server could not cope.
    pub failed: u64,
    /// How long an answer took on average, in seconds.
    pub seconds: f64,
    /// How long it usually takes.
    pub usual_seconds: f64,
}

/// What a controller has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Keys that wait for a worker.
    pub waiting: usize,
    /// Workers it may have now.
    pub workers: usize,
    /// Workers it was configured with, and the most it may get.
    pub configured: usize,
    /// The most workers it may get.
    pub most: usize,
}

/// How requests are slowed down and retries put off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Requests a second.
    pub rate: f64,
    /// By how much waits before retries are stretched.
    pub stretch: f64,
}

/// How the API server fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It answers as usual.
    Well,
    /// It answers slowly.
    Slow,
    /// It does not cope.
    Failing,
}

impl Condition {
    /// What calls say of it.
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

    /// A word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Slow => "slow",
            Self::Failing => "failing",
        }
    }
}

/// The pace from now on; `configured` is the rate without any trouble.
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
    Pace { rate: rate.clamp(configured * LEAST_RATE, configured), stretch: stretch.clamp(1.0, MOST_STRETCH) }
}

/// How many workers a controller should have from now on.
pub fn workers(condition: Condition, backlog: &Backlog) -> usize {
    let Backlog { waiting, workers, configured, most } = *backlog;
    let wanted = match condition {
        Condition::Failing => workers / 2,
        Condition::Slow => workers,
        // More than two keys wait for each worker: half as many again.
        Condition::Well if waiting > workers * 2 => workers + workers.div_ceil(2),
        // Nothing waits: back to what was configured, a quarter of the way.
        Condition::Well if waiting == 0 && workers > configured => {
            workers - (workers - configured).div_ceil(4)
        }
        Condition::Well => workers.max(configured.min(workers + 1)),
    };
    wanted.clamp(1, most.max(1))
}
