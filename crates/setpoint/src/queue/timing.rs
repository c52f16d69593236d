//! Counters and timings for the metrics.

use setpoint_clock::Instant;

use crate::metrics::histogram::{Histogram, QUEUE_SECONDS};

/// Counters are always kept. Timings are kept only if metrics are enabled, because reading the clock costs more than
/// queueing.
pub(super) struct Timing {
    pub(super) observed: bool,
    pub(super) adds: u64,
    pub(super) retries: u64,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}

impl Default for Timing {
    fn default() -> Self {
        let histogram = || Histogram::new(QUEUE_SECONDS);
        Self { observed: false, adds: 0, retries: 0, waited: histogram(), worked: histogram() }
    }
}

impl Timing {
    pub(super) fn waited(&mut self, since: Option<Instant>, now: Instant) {
        if let Some(since) = since {
            self.waited.observe(now.saturating_duration_since(since));
        }
    }

    pub(super) fn worked(&mut self, since: Instant, now: Instant) {
        self.worked.observe(now.saturating_duration_since(since));
    }
}
