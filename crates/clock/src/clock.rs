//! The clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A point on the monotonic timeline. It is tokio's type, so it stands still while time is paused.
pub use tokio::time::Instant;

/// A clock that tells the time and sleeps. Cheap to clone; clones show the same time.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// let clock = setpoint_clock::Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
/// clock.sleep(Duration::from_secs(3600)).await; // returns at once: time is paused
/// assert_eq!(clock.now().to_string(), "2025-01-01T01:00:00Z");
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    /// The system's wall clock, including adjustments.
    System,
    /// A wall clock derived from tokio's timeline. It showed `epoch` at `origin`, and has been set by `set` nanoseconds
    /// since.
    Simulated { epoch: Timestamp, origin: Instant, set: Arc<AtomicI64> },
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Self {
        Self { source: Source::System }
    }

    /// Creates a clock that shows `epoch` now and advances with tokio's timeline. Call this inside a Tokio runtime.
    #[allow(clippy::disallowed_methods, reason = "this module owns the clocks")]
    pub fn simulated(epoch: Timestamp) -> Self {
        Self { source: Source::Simulated { epoch, origin: Instant::now(), set: Arc::default() } }
    }

    /// Returns the wall-clock time.
    #[allow(clippy::disallowed_methods, reason = "this module owns the clocks")]
    pub fn now(&self) -> Timestamp {
        match &self.source {
            Source::System => Timestamp::now(),
            Source::Simulated { epoch, origin, set } => {
                *epoch + origin.elapsed() + SignedDuration::from_nanos(set.load(Ordering::Relaxed))
            }
        }
    }

    /// Sets a simulated wall clock forward or back, as an operator or a time server does. The monotonic timeline is not
    /// affected. Does nothing for the system clock.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// let clock = setpoint_clock::Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    /// let before = clock.instant();
    /// clock.clone().set_by(jiff::SignedDuration::from_hours(-1));
    /// assert_eq!(clock.now().to_string(), "2024-12-31T23:00:00Z");
    /// assert_eq!(clock.instant(), before);
    /// # });
    /// ```
    pub fn set_by(&self, difference: SignedDuration) {
        if let Source::Simulated { set, .. } = &self.source {
            // The limit is 292 years, in nanoseconds.
            let nanoseconds = i64::try_from(difference.as_nanos()).unwrap_or(i64::MAX);
            set.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }

    /// Returns the monotonic time, for measurements and deadlines.
    #[allow(clippy::disallowed_methods, reason = "this module owns the clocks")]
    pub fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Waits for `duration` on the monotonic timeline.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until `deadline` on the monotonic timeline.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }
}
