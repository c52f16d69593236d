//! Where "now" comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A point on the monotonic timeline: tokio's own, so that it stands still while time is paused.
pub use tokio::time::Instant;

/// Tells the time and sleeps. Cheap to clone; every clone shows the same time.
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
    /// The machine's wall clock, adjustments included.
    System,
    /// A wall clock derived from tokio's timeline: `epoch` is what it showed at `origin`; by how much it has been
    /// set since, in nanoseconds.
    Simulated { epoch: Timestamp, origin: Instant, set: Arc<AtomicI64> },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self { source: Source::System }
    }

    /// A clock that shows `epoch` now and moves with tokio's timeline. Call inside a runtime.
    #[allow(clippy::disallowed_methods, reason = "this module owns the clocks")]
    pub fn simulated(epoch: Timestamp) -> Self {
        Self { source: Source::Simulated { epoch, origin: Instant::now(), set: Arc::default() } }
    }

    /// The wall-clock time.
    #[allow(clippy::disallowed_methods, reason = "this module owns the clocks")]
    pub fn now(&self) -> Timestamp {
        match &self.source {
            Source::System => Timestamp::now(),
            Source::Simulated { epoch, origin, set } => {
                *epoch + origin.elapsed() + SignedDuration::from_nanos(set.load(Ordering::Relaxed))
            }
        }
    }

    /// Sets a simulated wall clock forward or back, as an operator or a time server does; the monotonic timeline
    /// goes on as it was. The machine's clock is not ours to set: there it does nothing.
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
            // 292 years, in nanoseconds, are as far as it goes.
            let nanoseconds = i64::try_from(difference.as_nanos()).unwrap_or(i64::MAX);
            set.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }

    /// The monotonic time, for measuring and for deadlines.
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
