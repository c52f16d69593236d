//! Retries: how often a call is attempted, and the pauses in between.

use std::time::Duration;

use setpoint_clock::Rng;

/// Attempts with growing, jittered pauses.
#[derive(Clone, Debug)]
pub struct Backoff {
    pub pause: Duration,
    pub factor: f64,
    pub jitter: f64,
    /// The maximum number of attempts.
    pub attempts: u32,
}

impl Default for Backoff {
    /// v1.34's default: 500 ms, growing by half each time. 5 attempts, with pauses of 4.1 to 4.9 s in total.
    fn default() -> Self {
        Self { pause: Duration::from_millis(500), factor: 1.5, jitter: 0.2, attempts: 5 }
    }
}

impl Backoff {
    /// Returns the pauses between attempts: one fewer than there are attempts.
    pub(crate) fn pauses(&self, rng: &Rng) -> std::vec::IntoIter<Duration> {
        let mut pause = self.pause;
        let pauses = (1..self.attempts).map(|_| {
            let jittered = pause.mul_f64(1.0 + self.jitter * rng.fraction());
            pause = pause.mul_f64(self.factor);
            jittered
        });
        pauses.collect::<Vec<_>>().into_iter()
    }
}
