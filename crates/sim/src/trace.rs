//! Everything that happened, in order.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::Clock;

/// The lines of a run. Bounded by the length of a plan: a run that exceeds it is a hot loop.
#[derive(Clone)]
pub struct Trace {
    clock: Clock,
    lines: Arc<Mutex<Vec<String>>>,
}

/// A scenario makes a few hundred calls; this many means that something spins.
const MOST_LINES: usize = 200_000;

impl Trace {
    pub fn new(clock: Clock) -> Self {
        Self { clock, lines: Arc::default() }
    }

    pub(crate) fn record(&self, what: impl Display) {
        let mut lines = self.lines.lock();
        assert!(lines.len() < MOST_LINES, "the run does not settle: {MOST_LINES} calls made, last {what}");
        lines.push(format!("{} {what}", self.clock.now()));
    }

    /// The whole trace as text.
    pub fn text(&self) -> String {
        self.lines.lock().join("\n")
    }
}
