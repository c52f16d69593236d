//! Counts executing and waiting requests: reads and writes, current and maximum.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use setpoint_flow::TimingRatio;

/// Metrics report the maximum over this period.
const PERIOD: Duration = Duration::from_secs(1);

/// Read-only or mutating requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    ReadOnly,
    Mutating,
}

impl RequestKind {
    /// Classifies by the request's verb, as v1.34 does: anything but get, list and watch is mutating.
    pub(super) fn of(verb: &str) -> Self {
        if matches!(verb, "get" | "list" | "watch") { Self::ReadOnly } else { Self::Mutating }
    }
}

/// The requests of all sorts.
pub(crate) struct InFlight {
    clock: Clock,
    executing: [Arc<Mutex<Watermark>>; 2],
    waiting: [Arc<Mutex<Watermark>>; 2],
    limits: Mutex<Limits>,
}

/// Histogram bounds: fractions of the limit.
const SHARES: &[f64] = &[0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// Maximum executing and waiting requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) executing: u64,
    pub(super) waiting: u64,
}

/// A count, its maxima in this period and the previous one, and its ratio to the limit over time.
struct Watermark {
    now: u64,
    most: u64,
    most_before: u64,
    period: Instant,
    ratio: TimingRatio,
}

impl Watermark {
    fn add(&mut self, at: Instant, change: i64) {
        self.turn(at);
        self.now = self.now.saturating_add_signed(change);
        self.most = self.most.max(self.now);
        self.ratio.set(at, self.now as f64);
    }

    /// Starts another period if this one is over. The count did not change in between.
    fn turn(&mut self, at: Instant) {
        let passed = at.saturating_duration_since(self.period);
        if passed >= PERIOD {
            self.most_before = if passed < 2 * PERIOD { self.most } else { self.now };
            (self.most, self.period) = (self.now, at);
        }
    }
}

/// Counts a request until it is dropped.
pub(crate) struct Counted {
    clock: Clock,
    watermark: Arc<Mutex<Watermark>>,
}

impl InFlight {
    pub(super) fn new(clock: Clock) -> Self {
        let period = clock.instant();
        let watermarks = || {
            [RequestKind::ReadOnly, RequestKind::Mutating].map(|_| TimingRatio::new(period, SHARES)).map(
                |ratio| Arc::new(Mutex::new(Watermark { now: 0, most: 0, most_before: 0, period, ratio })),
            )
        };
        Self { executing: watermarks(), waiting: watermarks(), clock, limits: Mutex::default() }
    }

    /// Sets the limits, which reads and writes share.
    pub(super) fn limit(&self, limits: Limits) {
        if std::mem::replace(&mut *self.limits.lock(), limits) == limits {
            return;
        }
        for sort in [RequestKind::ReadOnly, RequestKind::Mutating] {
            self.limit_executing(sort, limits.executing);
            self.waiting[sort as usize]
                .lock()
                .ratio
                .set_denominator(self.clock.instant(), limits.waiting as f64);
        }
    }

    pub(super) fn limit_executing(&self, sort: RequestKind, limit: u64) {
        self.executing[sort as usize].lock().ratio.set_denominator(self.clock.instant(), limit as f64);
    }

    /// Returns the utilization over time, by phase and kind of request.
    pub(crate) fn ratios(&self) -> impl Iterator<Item = (&'static str, &'static str, TimingRatio)> {
        let sorts = [("mutating", RequestKind::Mutating), ("readOnly", RequestKind::ReadOnly)];
        let phases = [("executing", &self.executing), ("waiting", &self.waiting)];
        phases.into_iter().flat_map(move |(phase, watermarks)| {
            sorts.map(|(kind, sort)| (phase, kind, watermarks[sort as usize].lock().ratio.clone()))
        })
    }

    pub(super) fn executing(&self, sort: RequestKind) -> Counted {
        self.counted(&self.executing[sort as usize])
    }

    pub(super) fn waiting(&self, sort: RequestKind) -> Counted {
        self.counted(&self.waiting[sort as usize])
    }

    /// Counts an executing request, unless that exceeds the limit. Zero means no limit.
    pub(super) fn within(&self, sort: RequestKind, limit: u32) -> Option<Counted> {
        let watermark = &self.executing[sort as usize];
        let mut locked = watermark.lock();
        if limit > 0 && locked.now >= u64::from(limit) {
            return None;
        }
        locked.add(self.clock.instant(), 1);
        drop(locked);
        Some(Counted { clock: self.clock.clone(), watermark: watermark.clone() })
    }

    fn counted(&self, watermark: &Arc<Mutex<Watermark>>) -> Counted {
        watermark.lock().add(self.clock.instant(), 1);
        Counted { clock: self.clock.clone(), watermark: watermark.clone() }
    }

    /// Returns the recent maxima of executing and waiting requests.
    pub(crate) fn most(&self, sort: RequestKind) -> (u64, u64) {
        let most = |watermark: &Mutex<Watermark>| {
            let mut watermark = watermark.lock();
            watermark.turn(self.clock.instant());
            watermark.most_before.max(watermark.now)
        };
        (most(&self.executing[sort as usize]), most(&self.waiting[sort as usize]))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.watermark.lock().add(self.clock.instant(), -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_seen_for_a_second() {
        let counts = InFlight::new(Clock::system());
        let burst: Vec<_> = (0..3).map(|_| counts.executing(RequestKind::Mutating)).collect();
        assert!(
            counts.within(RequestKind::Mutating, 3).is_none()
                && counts.within(RequestKind::Mutating, 0).is_some()
        );
        drop(burst);
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert_eq!(counts.most(RequestKind::Mutating), (4, 0));
        assert_eq!(counts.most(RequestKind::ReadOnly), (0, 0));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(counts.most(RequestKind::Mutating), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_share_of_the_limit_is_counted_over_time() {
        let clock = Clock::system();
        let counts = InFlight::new(clock.clone());
        counts.limit(Limits { executing: 10, waiting: 100 });
        let request = counts.executing(RequestKind::ReadOnly);
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(request);
        tokio::time::advance(Duration::from_secs(1)).await;
        let ratio = counts.ratios().find(|(phase, kind, _)| (*phase, *kind) == ("executing", "readOnly"));
        let (buckets, total, _) = ratio.unwrap().2.cumulative(clock.instant());
        let second = 1_000_000_000;
        assert_eq!((buckets[0], total), ((0.0, second), 3 * second));
        assert!(buckets.contains(&(0.1, 3 * second)), "{buckets:?}");
    }
}
