//! Time-weighted statistics of a number that changes in steps.

use setpoint_clock::Instant;

/// The integral of a number over time: its average, deviation and extremes since the last reset.
#[derive(Clone, Debug)]
pub struct Integrator {
    value: f64,
    since: Instant,
    seconds: f64,
    integral: f64,
    integral_of_squares: f64,
    max: f64,
}

/// The demand over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    pub seconds: f64,
    pub average: f64,
    pub deviation: f64,
    pub max: f64,
}

impl Integrator {
    pub fn new(now: Instant) -> Self {
        Self { value: 0.0, since: now, seconds: 0.0, integral: 0.0, integral_of_squares: 0.0, max: 0.0 }
    }

    pub fn set(&mut self, now: Instant, value: f64) {
        self.integrate(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    /// Returns the demand so far, and starts the next period.
    pub fn reset(&mut self, now: Instant) -> Demand {
        self.integrate(now);
        let mut demand = Demand { seconds: self.seconds, max: self.max, ..Demand::default() };
        if self.seconds > 0.0 {
            demand.average = self.integral / self.seconds;
            let variance = self.integral_of_squares / self.seconds - demand.average * demand.average;
            // Rounding can leave a tiny negative variance.
            demand.deviation = variance.max(0.0).sqrt();
        }
        (self.seconds, self.integral, self.integral_of_squares) = (0.0, 0.0, 0.0);
        self.max = self.value;
        demand
    }

    fn integrate(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = self.since.max(now);
        self.seconds += seconds;
        self.integral += self.value * seconds;
        self.integral_of_squares += self.value * self.value * seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn demand_is_weighted_by_time() {
        let start = setpoint_clock::Clock::system().instant();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut demand = Integrator::new(start);
        demand.set(at(0), 4.0);
        demand.set(at(5), 0.0);
        let seen = demand.reset(at(10));
        assert_eq!(seen, Demand { seconds: 10.0, average: 2.0, deviation: 2.0, max: 4.0 });
        demand.set(at(12), 1.0);
        assert_eq!(demand.reset(at(12)).max, 1.0);
        assert_eq!(demand.reset(at(12)), Demand { max: 1.0, ..Demand::default() });
    }
}
