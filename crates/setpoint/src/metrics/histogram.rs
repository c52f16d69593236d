//! A histogram without a lock. Its owner has one.

use std::time::Duration;

/// A histogram: counts of observations by upper bound, in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One per bound, and one for values above all bounds.
    counts: Box<[u64]>,
    sum: f64,
}

/// The buckets for durations of work queues: 10 ns to 10 s, in powers of ten.
pub(crate) const QUEUE_SECONDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// The buckets for durations of reconciles.
pub(crate) const RECONCILE_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// The buckets for durations of requests.
pub(crate) const REQUEST_SECONDS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, duration: Duration) {
        self.observe_times(duration, 1);
    }

    /// Records the same duration several times.
    pub(crate) fn observe_times(&mut self, duration: Duration, times: u64) {
        self.observe_value(duration.as_secs_f64(), times);
    }

    pub(crate) fn observe_value(&mut self, value: f64, times: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += times;
        self.sum += value * times as f64;
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the upper bounds with cumulative counts, without the overflow bucket.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0, |under, (bound, count)| {
            *under += count;
            Some((*bound, *under))
        })
    }
}
