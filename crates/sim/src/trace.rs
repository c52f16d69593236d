//! The trace: everything that happened, in order.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::Clock;

/// The lines of a run. Bounded by the length of a plan: a run that exceeds it is in a hot loop.
#[derive(Clone)]
pub struct Trace {
    clock: Clock,
    lines: Arc<Mutex<Vec<String>>>,
}

/// A scenario makes a few hundred calls. This many means that something is in a hot loop.
const MAX_LINES: usize = 200_000;

impl Trace {
    pub fn new(clock: Clock) -> Self {
        Self { clock, lines: Arc::default() }
    }

    pub(crate) fn record(&self, what: impl Display) {
        let mut lines = self.lines.lock();
        assert!(lines.len() < MAX_LINES, "the run does not settle: {MAX_LINES} calls made, last {what}");
        lines.push(format!("{} {what}", self.clock.now()));
    }

    /// Returns the whole trace as text.
    pub fn text(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// Returns the writes so far, without heartbeats and events: `POST /api/v1/namespaces/default/pods 201`.
    pub fn writes(&self) -> Vec<String> {
        let is_write = |call: &&str| {
            let verb = call.split(' ').next().unwrap_or_default();
            matches!(verb, "POST" | "PUT" | "PATCH" | "DELETE")
                && !call.contains("/events")
                && !call.contains("/leases")
        };
        let lines = self.lines.lock();
        let calls = lines.iter().filter_map(|line| Some(line.split_once(' ')?.1));
        calls.filter(is_write).map(str::to_owned).collect()
    }
}
