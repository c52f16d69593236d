//! Starts controllers one after the other, if configured.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint::Runnable;
use setpoint::health::Check;
use setpoint::metrics::Metrics;
use tokio_util::sync::CancellationToken;

/// Delays each runnable by one interval more than the previous one.
pub(super) fn staggered(parts: Vec<Box<dyn Runnable>>, interval: Duration) -> Vec<Box<dyn Runnable>> {
    if interval.is_zero() {
        return parts;
    }
    let delayed = |(place, part): (usize, Box<dyn Runnable>)| {
        let delay = interval.saturating_mul(u32::try_from(place).unwrap_or(u32::MAX));
        Box::new(Delayed { part, delay }) as Box<dyn Runnable>
    };
    parts.into_iter().enumerate().map(delayed).collect()
}

struct Delayed {
    part: Box<dyn Runnable>,
    delay: Duration,
}

impl Runnable for Delayed {
    fn name(&self) -> &str {
        self.part.name()
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.delay) => {}
            }
            self.part.run(stop).await;
        }
        .boxed()
    }

    fn observe(&mut self, metrics: &Metrics) {
        self.part.observe(metrics);
    }

    fn readiness(&self) -> Option<Check> {
        self.part.readiness()
    }

    fn needs_leader(&self) -> bool {
        self.part.needs_leader()
    }
}
