//! Statistics of levels and flows, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use setpoint_clock::Instant;

use crate::queue_set::Reason;

/// A histogram of integers: lengths, seats, nanoseconds. Lock-free.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    buckets: [AtomicU64; N],
    count: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    pub fn new(bounds: &'static [u64; N]) -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bounds, buckets, count: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(self.bounds.partition_point(|bound| *bound < value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns how many values were at most each bound.
    pub fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut so_far = 0;
        let at_most = |(bound, bucket): (&u64, &AtomicU64)| {
            so_far += bucket.load(Ordering::Relaxed);
            (*bound, so_far)
        };
        self.bounds.iter().zip(&self.buckets).map(at_most).collect()
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
/// 0, 5 ms, 20 ms, 50 ms, 0.1 s, 0.2 s, 0.5 s, 1, 2, 5, 10, 15, 30 s
static DURATIONS: [u64; 13] = [
    0,
    5 * MILLISECOND,
    20 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    200 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
];
static LENGTHS: [u64; 8] = [0, 10, 25, 50, 100, 250, 500, 1000];
static SEATS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 100];
static WATCHERS: [u64; 6] = [0, 1, 10, 100, 1000, 10_000];

/// The statistics of one flow schema's requests at one level.
#[derive(Debug)]
pub struct FlowStats {
    pub waiting: AtomicI64,
    pub waiting_seats: AtomicI64,
    pub executing: AtomicI64,
    pub executing_seats: AtomicI64,
    pub dispatched: AtomicU64,
    pub not_accommodated: AtomicU64,
    rejected: [AtomicU64; 3],
    /// Nanoseconds in a queue: of requests rejected on arrival, and of all others.
    pub waited: [Histogram<13>; 2],
    /// Nanoseconds of execution: of regular requests, and of the initialization of watches.
    pub executed: [Histogram<13>; 2],
    pub queue_length: Histogram<8>,
    pub seats: Histogram<8>,
    pub watchers: Histogram<6>,
}

impl Default for FlowStats {
    fn default() -> Self {
        Self {
            waiting: AtomicI64::new(0),
            waiting_seats: AtomicI64::new(0),
            executing: AtomicI64::new(0),
            executing_seats: AtomicI64::new(0),
            dispatched: AtomicU64::new(0),
            not_accommodated: AtomicU64::new(0),
            rejected: Default::default(),
            waited: std::array::from_fn(|_| Histogram::new(&DURATIONS)),
            executed: std::array::from_fn(|_| Histogram::new(&DURATIONS)),
            queue_length: Histogram::new(&LENGTHS),
            seats: Histogram::new(&SEATS),
            watchers: Histogram::new(&WATCHERS),
        }
    }
}

impl FlowStats {
    pub(crate) fn reject(&self, reason: Reason) {
        self.rejected[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn rejected(&self, reason: Reason) -> u64 {
        self.rejected[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self, requests: i64, seats: i64) {
        self.waiting.fetch_add(requests, Ordering::Relaxed);
        self.waiting_seats.fetch_add(seats, Ordering::Relaxed);
    }
}

/// A histogram of a ratio over time: each nanosecond counts once, at its value.
#[derive(Clone, Debug)]
pub struct TimingRatio {
    bounds: &'static [f64],
    /// Nanoseconds by the first bucket the ratio fits in. The last one is for all higher ratios.
    nanoseconds: Vec<u64>,
    sum: f64,
    numerator: f64,
    denominator: f64,
    since: Instant,
}

impl TimingRatio {
    pub fn new(now: Instant, bounds: &'static [f64]) -> Self {
        let nanoseconds = vec![0; bounds.len() + 1];
        Self { bounds, nanoseconds, sum: 0.0, numerator: 0.0, denominator: 1.0, since: now }
    }

    pub fn set(&mut self, now: Instant, numerator: f64) {
        self.observe(now);
        self.numerator = numerator;
    }

    pub fn set_denominator(&mut self, now: Instant, denominator: f64) {
        self.observe(now);
        self.denominator = denominator.max(1.0);
    }

    fn observe(&mut self, now: Instant) {
        let nanoseconds = now.saturating_duration_since(self.since).as_nanos() as u64;
        if nanoseconds == 0 {
            return;
        }
        self.since = now;
        let ratio = self.numerator / self.denominator;
        self.nanoseconds[self.bounds.partition_point(|bound| *bound < ratio)] += nanoseconds;
        self.sum += ratio * nanoseconds as f64;
    }

    /// Returns the cumulative nanoseconds up to each bound, the total, and the sum of all values.
    pub fn cumulative(&mut self, now: Instant) -> (Vec<(f64, u64)>, u64, f64) {
        self.observe(now);
        let mut so_far = 0;
        let at_most = |(bound, count): (&f64, &u64)| {
            so_far += count;
            (*bound, so_far)
        };
        let buckets = self.bounds.iter().zip(&self.nanoseconds).map(at_most).collect();
        (buckets, self.nanoseconds.iter().sum(), self.sum)
    }
}

const UTILIZATION: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const CONCURRENCY: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// The utilization of a level over time.
#[derive(Clone, Debug)]
pub struct LevelGauges {
    pub waiting: TimingRatio,
    pub executing: TimingRatio,
    pub seats: TimingRatio,
    pub demand: TimingRatio,
}

impl LevelGauges {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            waiting: TimingRatio::new(now, CONCURRENCY),
            executing: TimingRatio::new(now, CONCURRENCY),
            seats: TimingRatio::new(now, UTILIZATION),
            demand: TimingRatio::new(now, DEMAND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let histogram = Histogram::new(&SEATS);
        [1, 2, 3, 1000].into_iter().for_each(|seats| histogram.observe(seats));
        assert_eq!(histogram.cumulative()[..3], [(1, 1), (2, 2), (4, 3)]);
        assert_eq!((histogram.count(), histogram.sum(), histogram.cumulative()[7].1), (4, 1006, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ratio_counts_the_time_that_it_had_a_value() {
        let start = setpoint_clock::Clock::system().instant();
        let mut ratio = TimingRatio::new(start, UTILIZATION);
        ratio.set_denominator(start, 10.0);
        ratio.set(start + Duration::from_nanos(5), 4.0);
        ratio.set(start + Duration::from_nanos(8), 40.0);
        let (buckets, count, sum) = ratio.cumulative(start + Duration::from_nanos(10));
        assert_eq!((buckets[0].1, buckets[4].1, buckets[12].1, count), (5, 8, 8, 10));
        assert!((sum - (3.0 * 0.4 + 2.0 * 4.0)).abs() < 1e-9);
    }
}
