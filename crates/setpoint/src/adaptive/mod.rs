//! Concurrency that adapts to the load, and backpressure. See [`decide`] for the rules.
//!
//! Every few seconds, the request rate, the number of workers and the retry delays are adjusted, based on the calls
//! since the last decision and on the queue lengths. Metrics show each decision: `setpoint_adaptive_condition`,
//! `_client_qps`, `_retry_stretch`, `_workers{controller}` and `_decisions_total{what,direction}`.
//!
//! Invariant: without load and with a healthy API server, everything is as configured.

pub mod decide;
mod limiter;
#[cfg(test)]
mod tests;
mod traffic;
mod worker_slot;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint_clock::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Runnable;
use crate::backoff::TokenBucket;
use crate::metrics::Metrics;
use decide::{Backlog, Condition, Pace};

pub(crate) use limiter::Stretched;
pub(crate) use traffic::Traffic;
pub(crate) use worker_slot::WorkerSlot;

/// The interval between decisions: long enough for the effect of one to show in the next measurement.
const INTERVAL: Duration = Duration::from_secs(5);

/// The adaptive state, shared by the client, the queues and the controllers of a manager. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint::{Clock, adaptive::AdaptiveLimits};
/// let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
/// let adaptive = AdaptiveLimits::new(&clock, 50.0, 100);
/// assert_eq!(adaptive.pace().rate, 50.0);
/// # });
/// ```
#[derive(Clone)]
pub struct AdaptiveLimits {
    shared: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    traffic: Arc<Traffic>,
    configured_rate: f64,
    bucket: Arc<Mutex<TokenBucket>>,
    pace: Mutex<Pace>,
    /// One entry per controller.
    controllers: Mutex<Vec<AdaptiveController>>,
}

/// A controller whose number of workers follows its backlog.
struct AdaptiveController {
    name: &'static str,
    configured: usize,
    most: usize,
    limit: watch::Sender<usize>,
    waiting: Arc<dyn Fn() -> usize + Send + Sync>,
}

impl AdaptiveLimits {
    /// Creates the state with the configured rate and burst.
    pub fn new(clock: &Clock, rate: f64, burst: u32) -> Self {
        let shared = Inner {
            clock: clock.clone(),
            traffic: Arc::default(),
            configured_rate: rate,
            bucket: Arc::new(Mutex::new(TokenBucket::new(rate, burst))),
            pace: Mutex::new(Pace { rate, stretch: 1.0 }),
            controllers: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the current pace.
    pub fn pace(&self) -> Pace {
        *self.shared.pace.lock()
    }

    pub(crate) fn bucket(&self) -> Arc<Mutex<TokenBucket>> {
        self.shared.bucket.clone()
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        self.shared.traffic.clone()
    }

    /// Makes the number of workers of a controller follow its backlog.
    pub(crate) fn adapt(
        &self,
        name: &'static str,
        configured: usize,
        most: usize,
        waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    ) -> watch::Receiver<usize> {
        let limit = watch::Sender::new(configured);
        let receiver = limit.subscribe();
        self.shared.controllers.lock().push(AdaptiveController { name, configured, most, limit, waiting });
        receiver
    }

    /// Makes and applies one decision.
    fn decide(&self, metrics: &Metrics) {
        let condition = Condition::of(&self.shared.traffic.take());
        self.set_pace(condition, metrics);
        for controller in &*self.shared.controllers.lock() {
            controller.set_workers(condition, metrics);
        }
        let help = "Condition of the API server: 0 healthy, 1 slow, 2 failing.";
        metrics.set_gauge("setpoint_adaptive_condition", help, &[], f64::from(condition as u8));
    }

    fn set_pace(&self, condition: Condition, metrics: &Metrics) {
        let mut pace = self.shared.pace.lock();
        let next = decide::pace(condition, *pace, self.shared.configured_rate);
        count(metrics, "client_qps", pace.rate, next.rate);
        count(metrics, "retry_stretch", pace.stretch, next.stretch);
        *pace = next;
        self.shared.bucket.lock().set_rate(next.rate, self.shared.clock.instant());
        metrics.set_gauge("setpoint_adaptive_client_qps", "Allowed requests per second.", &[], next.rate);
        let help = "Factor applied to retry delays.";
        metrics.set_gauge("setpoint_adaptive_retry_stretch", help, &[], next.stretch);
    }
}

impl AdaptiveController {
    fn set_workers(&self, condition: Condition, metrics: &Metrics) {
        let workers = *self.limit.borrow();
        let (waiting, configured, most) = ((self.waiting)(), self.configured, self.most);
        let next = decide::workers(condition, &Backlog { waiting, workers, configured, most });
        count(metrics, "workers", workers as f64, next as f64);
        let help = "Maximum number of workers of a controller.";
        metrics.set_gauge("setpoint_adaptive_workers", help, &[("controller", self.name)], next as f64);
        if next != workers {
            let (controller, condition) = (self.name, condition.name());
            tracing::info!(controller, waiting, condition, from = workers, to = next, "workers adapted");
            self.limit.send_replace(next);
        }
    }
}

fn count(metrics: &Metrics, what: &str, before: f64, after: f64) {
    let direction = match after.total_cmp(&before) {
        std::cmp::Ordering::Less => "down",
        std::cmp::Ordering::Equal => return,
        std::cmp::Ordering::Greater => "up",
    };
    let help = "Adaptive decisions, by subject and direction.";
    metrics.count("setpoint_adaptive_decisions", help, &[("what", what), ("direction", direction)], 1);
}

/// A runnable that makes a decision every few seconds.
pub(crate) struct AdaptiveLoop {
    pub(crate) adaptive: AdaptiveLimits,
    pub(crate) metrics: Metrics,
}

impl Runnable for AdaptiveLoop {
    fn name(&self) -> &str {
        "adaptive-concurrency"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                self.adaptive.decide(&self.metrics);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.adaptive.shared.clock.sleep(INTERVAL) => {}
                }
            }
        })
    }

    fn needs_leader(&self) -> bool {
        false
    }
}
