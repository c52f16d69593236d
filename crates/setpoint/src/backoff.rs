//! Exponential backoff and token buckets. Neither reads a clock.
//!
//! Invariant: the same sequence of calls with the same instants gives the same delays.

use std::time::Duration;

use setpoint_clock::Instant;

/// A delay that doubles with every failure, up to a maximum.
///
/// ```
/// use std::time::Duration;
/// use setpoint::backoff::Backoff;
/// let backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(1000));
/// assert_eq!(backoff.delay(0), Duration::from_millis(5));
/// assert_eq!(backoff.delay(3), Duration::from_millis(40));
/// assert_eq!(backoff.delay(99), Duration::from_secs(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first counted failure.
    base: Duration,
    /// The longest delay.
    max: Duration,
    /// The number of failures without a delay before the doubling starts.
    free: u32,
}

impl Backoff {
    /// Creates a backoff of `base`, twice `base`, four times `base` and so on, capped at `max`.
    pub const fn doubling(base: Duration, max: Duration) -> Self {
        Self { base, max, free: 0 }
    }

    /// Makes the first `free` failures cause no delay.
    pub const fn after(self, free: u32) -> Self {
        Self { free, ..self }
    }

    /// Returns the delay after a failure that `failures` earlier ones preceded.
    pub fn delay(&self, failures: u32) -> Duration {
        match failures.checked_sub(self.free) {
            None => Duration::ZERO,
            Some(exponent) => self.doubled(exponent),
        }
    }

    fn doubled(&self, exponent: u32) -> Duration {
        // Exact while the delay is below 2^53 ns (104 days). 2^1000 exceeds every maximum.
        let nanos = self.base.as_nanos() as f64 * 2f64.powi(exponent.min(1000) as i32);
        if nanos >= self.max.as_nanos() as f64 { self.max } else { Duration::from_nanos(nanos as u64) }
    }
}

/// A token bucket: holds up to `burst` tokens and refills at a steady rate.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use setpoint::backoff::TokenBucket;
/// # let now = setpoint::Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()).instant();
/// let mut bucket = TokenBucket::new(10.0, 2);
/// assert_eq!(bucket.reserve(now), Duration::ZERO);
/// assert_eq!(bucket.reserve(now), Duration::ZERO);
/// assert_eq!(bucket.reserve(now), Duration::from_millis(100)); // the third waits for a refill
/// assert!(!bucket.try_take(now));
/// assert!(bucket.try_take(now + Duration::from_millis(300)));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// The tokens left. Negative while reservations are ahead of the refill.
    tokens: f64,
    /// When `tokens` was last updated. `None` before the first use.
    at: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens that refills at `per_second`.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst: f64::from(burst), tokens: f64::from(burst), at: None }
    }

    /// Takes a token, borrowing from the future if necessary. Returns how long to wait until it is available.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Takes a token if one is available now.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let available = self.tokens >= 1.0;
        if available {
            self.tokens -= 1.0;
        }
        available
    }

    /// Changes the refill rate from `now` on.
    pub fn set_rate(&mut self, per_second: f64, now: Instant) {
        self.refill(now);
        self.per_second = per_second;
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.per_second).min(self.burst);
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_its_bound() {
        let check = |backoff: Backoff, expected: &[(u32, u64)]| {
            for (failures, millis) in expected {
                assert_eq!(
                    backoff.delay(*failures),
                    Duration::from_millis(*millis),
                    "{backoff:?} after {failures}"
                );
            }
        };
        let second = Duration::from_secs(1);
        check(
            Backoff::doubling(Duration::from_millis(5), second * 1000),
            &[
                (0, 5),
                (1, 10),
                (10, 5120),
                (17, 655_360),
                (18, 1_000_000),
                (31, 1_000_000),
                (u32::MAX, 1_000_000),
            ],
        );
        check(
            Backoff::doubling(second, second * 300).after(1),
            &[(0, 0), (1, 1000), (2, 2000), (3, 4000), (9, 256_000), (10, 300_000), (40, 300_000)],
        );
        check(Backoff::doubling(Duration::ZERO, second), &[(0, 0), (70, 0)]);
    }

    #[test]
    fn a_delay_longer_than_a_u32_of_bases_still_doubles() {
        let backoff = Backoff::doubling(Duration::from_nanos(1), Duration::from_secs(1_000_000));
        assert_eq!(backoff.delay(40), Duration::from_secs_f64(2f64.powi(40) * 1e-9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_refills_no_further_than_its_burst() {
        let clock = setpoint_clock::Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let now = clock.instant();
        let mut bucket = TokenBucket::new(1.0, 2);
        assert!(bucket.try_take(now) && bucket.try_take(now) && !bucket.try_take(now));
        let later = now + Duration::from_secs(3600);
        assert!(bucket.try_take(later) && bucket.try_take(later) && !bucket.try_take(later));
    }
}
