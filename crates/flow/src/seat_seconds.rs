//! Work in seat-seconds, as fixed-point numbers, so that sums stay exact however long a server runs.

use std::fmt;
use std::time::Duration;

/// An amount of work, or a reading of the progress meter R.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatSeconds(u64);

/// Units per seat-second.
const SCALE: u64 = 100_000_000;
const NANOSECONDS_PER_UNIT: f64 = 10.0;

impl SeatSeconds {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the work of this many seats for this duration.
    pub fn of(seats: f64, duration: Duration) -> Self {
        Self((seats * duration.as_nanos() as f64 / NANOSECONDS_PER_UNIT).round() as u64)
    }

    pub fn as_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// Returns how long this many seats take for this work.
    pub fn per_seat(self, seats: f64) -> Duration {
        Duration::from_nanos((self.0 as f64 / seats * NANOSECONDS_PER_UNIT) as u64)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    #[must_use]
    pub(crate) const fn divided_by(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl fmt::Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08}ss", self.0 / SCALE, self.0 % SCALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seat_seconds_are_written_with_eight_digits() {
        assert_eq!(SeatSeconds::of(1.0, Duration::from_nanos(14)).to_string(), "0.00000001ss");
        assert_eq!(SeatSeconds::of(2.5, Duration::from_secs(3)).to_string(), "7.50000000ss");
        assert_eq!(SeatSeconds::MAX.to_string(), "184467440737.09551615ss");
        assert_eq!(SeatSeconds::of(10.0, Duration::from_millis(5)).per_seat(2.0), Duration::from_millis(25));
    }
}
