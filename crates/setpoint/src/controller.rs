//! A controller: a queue, a reconciler, workers, and the caches it waits for.
//!
//! ```text
//!  wait for the caches ─► workers take keys ─► stop: the queue shuts down, workers drain it ─► done
//! ```
//!
//! Invariants:
//! - No key is reconciled before every cache the controller waits for has synced.
//! - The controller's future owns its workers: dropping it ends them all.

mod builder;
mod caches;
mod subject;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Key;
use crate::adaptive::{AdaptiveLimits, WorkerSlot};
use crate::health::Check;
use crate::informer::Informer;
use crate::introspection::{Inspector, Journal};
use crate::metrics::{Metrics, Reconciles};
use crate::pending_writes::PendingWrites;
use crate::queue::Queue;
use crate::reconcile::{Reconciler, WorkKey};
use crate::worker::{AnyReconciler, Policy, Worker};

pub use builder::{Builder, Wiring};
pub(crate) use caches::Caches;
pub use subject::{IntoReconciler, Subject};

/// A component that a manager runs until it is stopped.
///
/// ```
/// use futures::future::BoxFuture;
/// use setpoint::Runnable;
/// use tokio_util::sync::CancellationToken;
/// struct Heartbeat;
/// impl Runnable for Heartbeat {
///     fn name(&self) -> &str { "heartbeat" }
///     fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
///         Box::pin(async move { stop.cancelled().await })
///     }
/// }
/// ```
pub trait Runnable: Send + 'static {
    /// Returns the name used in logs, metrics and health checks.
    fn name(&self) -> &str;

    /// Runs until `stop` is cancelled, then finishes the work in progress. Must own everything it spawns: dropping the
    /// future ends it all.
    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()>;

    /// Registers metrics. Called once, before [`run`](Self::run).
    fn observe(&mut self, metrics: &Metrics) {
        let _ = metrics;
    }

    /// Returns a readiness check, if there is one. Called once, before [`run`](Self::run).
    fn readiness(&self) -> Option<Check> {
        None
    }

    /// Returns whether this runs only in the leader (default: yes). Components that only read or serve can run in every
    /// replica.
    fn needs_leader(&self) -> bool {
        true
    }
}

/// One or more runnables, as [`Manager::with`](crate::Manager::with) takes them.
///
/// ```
/// fn count(runnables: impl setpoint::controller::IntoRunnables) -> usize {
///     runnables.into_runnables().len()
/// }
/// # fn example(controller: setpoint::Controller) {
/// assert_eq!(count(controller), 1);
/// # }
/// ```
pub trait IntoRunnables {
    /// Returns the runnables.
    fn into_runnables(self) -> Vec<Box<dyn Runnable>>;
}

impl<R: Runnable> IntoRunnables for R {
    fn into_runnables(self) -> Vec<Box<dyn Runnable>> {
        vec![Box::new(self)]
    }
}

impl IntoRunnables for Vec<Box<dyn Runnable>> {
    fn into_runnables(self) -> Vec<Box<dyn Runnable>> {
        self
    }
}

impl Runnable for Box<dyn Runnable> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        (*self).run(stop)
    }

    fn observe(&mut self, metrics: &Metrics) {
        (**self).observe(metrics);
    }

    fn readiness(&self) -> Option<Check> {
        (**self).readiness()
    }

    fn needs_leader(&self) -> bool {
        (**self).needs_leader()
    }
}

/// A queue of keys with the reconciler that processes them.
///
/// [`Controller::for_`] is a builder for the common case. [`Controller::new`] takes a queue that you fill yourself:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint::{Clock, Controller, Key, Outcome, Queue, ReconcileError, Reconciler, Rng, Runnable, Runtime};
/// use tokio_util::sync::CancellationToken;
/// struct Greeter;
/// impl Reconciler for Greeter {
///     type Key = Key;
///     async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
///         println!("hello, {key}");
///         Ok(Outcome::Settled)
///     }
/// }
/// # let runtime = Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()), rng: Rng::seeded(1) };
/// let queue = Queue::new("greeter", &runtime);
/// let controller = Controller::new("greeter", queue.clone(), Greeter).workers(2);
/// queue.add(Key::cluster("world"));
/// let stop = CancellationToken::new();
/// stop.cancel(); // what is queued is still worked on
/// Box::new(controller).run(stop).await;
/// assert!(queue.is_empty());
/// # });
/// ```
pub struct Controller<K: WorkKey = Key> {
    name: &'static str,
    queue: Queue<K>,
    reconciler: Box<dyn AnyReconciler<K>>,
    workers: usize,
    caches: Caches,
    policy: Policy,
    drain: Duration,
    metrics: Option<Metrics>,
    /// Its introspection data, once it is observed.
    inspector: Option<Arc<Inspector<K>>>,
    adaptive: Option<(AdaptiveLimits, usize)>,
    queue_size: Option<usize>,
    reads_own_writes: bool,
    /// Whether its keys go to the queue of a fleet.
    is_in_fleet: bool,
}

/// The default time a stopping controller's workers have to drain the queue.
const DRAIN: Duration = Duration::from_secs(30);

impl<K: WorkKey> Controller<K> {
    /// Creates a controller with one worker.
    pub fn new(name: &'static str, queue: Queue<K>, reconciler: impl Reconciler<Key = K>) -> Self {
        Self {
            name,
            queue,
            reconciler: Box::new(reconciler),
            workers: 1,
            caches: Caches::default(),
            policy: Policy::default(),
            drain: DRAIN,
            metrics: None,
            inspector: None,
            adaptive: None,
            queue_size: None,
            reads_own_writes: false,
            is_in_fleet: false,
        }
    }

    /// Sets how many keys are reconciled concurrently (default and minimum: 1).
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: workers.max(1), ..self }
    }

    /// Waits for this informer to sync before reconciling any key.
    pub fn waits_for(self, informer: &Informer) -> Self {
        self.caches.add(informer);
        self
    }

    /// Waits for these caches before reconciling any key.
    fn reading(self, caches: Caches) -> Self {
        Self { caches, ..self }
    }

    fn in_fleet(self) -> Self {
        Self { is_in_fleet: true, ..self }
    }

    /// Returns the part that a fleet needs of the controller for one cluster. `None` if it has a queue of its own.
    pub(crate) fn into_part(self) -> Option<(Box<dyn AnyReconciler<K>>, Caches)> {
        self.is_in_fleet.then_some((self.reconciler, self.caches))
    }

    /// Sets a timeout for a reconcile. A reconcile that exceeds it is dropped and retried later (default: no timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = Some(timeout);
        self
    }

    /// Stops retrying a key after this many failures in a row, until it changes (default: no limit).
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.policy.max_retries = Some(retries);
        self
    }

    /// Retries terminal errors like all others, as Kubernetes' own controllers do: a quota or policy that rejects a
    /// request now may allow it later, and this controller gets no event for that.
    pub fn persistent(mut self) -> Self {
        self.policy.persistent = true;
        self
    }

    /// Does not reconcile a key before the caches that the controller [waits for](Self::waits_for) show what its last
    /// reconcile wrote through a [`Client`](crate::Client). A reconciler then never acts on a cache older than its own
    /// writes, so it never repeats them.
    ///
    /// If an informer uses a selector, a write to an object it does not select becomes visible only with the next
    /// bookmark, which may take a minute. [`write_tracker`](crate::write_tracker) compares this with the alternatives.
    pub fn reads_own_writes(self) -> Self {
        Self { reads_own_writes: true, ..self }
    }

    /// Sets how long the workers may take to drain the queue after a stop (default 30 s).
    pub fn drain_within(self, drain: Duration) -> Self {
        Self { drain, ..self }
    }

    /// Sets the queue length at which the informers that feed the queue stop reading. Applies only while the controller
    /// is running: a standby replica keeps its caches up to date, however long its queue gets.
    pub fn queue_size(self, keys: usize) -> Self {
        Self { queue_size: Some(keys), ..self }
    }

    /// Scales up to `most` workers when the queue grows, and below the configured number when the API server is
    /// overloaded.
    pub fn adaptive_workers(self, adaptive: &AdaptiveLimits, most: usize) -> Self {
        Self { adaptive: Some((adaptive.clone(), most)), ..self }
    }

    /// Waits for the caches to sync. Returns `false` if it is stopped first.
    async fn wait_for_sync(&self, stop: &CancellationToken) -> bool {
        let informers = self.caches.all();
        tokio::select! {
            biased;
            () = stop.cancelled(), if !informers.is_empty() => false,
            _ = join_all(informers.iter().map(Informer::wait_for_sync)) => true,
        }
    }

    async fn work(self, stop: CancellationToken) {
        let pending_writes = self.reads_own_writes.then(|| PendingWrites::new(self.caches.clone()));
        let Self { name, queue, reconciler, workers, policy, drain, metrics, .. } = self;
        let Self { inspector, adaptive, queue_size, .. } = self;
        let queue = match queue_size {
            Some(keys) => queue.bounded(keys),
            None => queue,
        };
        let waiting = queue.clone();
        let limit = adaptive.map(|(adaptive, most)| {
            (most, adaptive.adapt(name, workers, most, Arc::new(move || waiting.len())))
        });
        let count = limit.as_ref().map_or(workers, |(most, _)| workers.max(*most));
        let reconciles = Arc::new(Reconciles::new(workers));
        if let Some(metrics) = metrics {
            metrics.add_controller(name, reconciles.clone());
        }
        let worker = Arc::new(Worker {
            controller: name,
            clock: queue.clock().clone(),
            queue: queue.clone(),
            reconciler,
            policy,
            reconciles,
            inspector,
            pending_writes,
            started: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let limit = limit.as_ref().map(|(_, limit)| limit.clone());
            tasks.spawn(worker.clone().run(WorkerSlot { number, limit, stop: stop.clone() }));
        }
        stop.cancelled().await;
        queue.shut_down();
        if tokio::time::timeout(drain, finish(&mut tasks)).await.is_err() {
            tracing::warn!(
                controller = name,
                left = queue.len(),
                "the workers did not finish within {drain:?}"
            );
        }
    }
}

async fn finish(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

impl<K: WorkKey> Runnable for Controller<K> {
    fn name(&self) -> &str {
        self.name
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if self.wait_for_sync(&stop).await {
                self.work(stop).await;
            } else {
                self.queue.shut_down_now();
            }
        })
    }

    fn observe(&mut self, metrics: &Metrics) {
        self.queue.observe(metrics);
        let journal = Mutex::new(Journal::default());
        let inspector = Arc::new(Inspector { name: self.name, queue: self.queue.clone(), journal });
        metrics.introspection().add(&inspector);
        self.inspector = Some(inspector);
        self.metrics = Some(metrics.clone());
    }

    fn readiness(&self) -> Option<Check> {
        let caches = self.caches.clone();
        Some(Arc::new(move || match caches.all().iter().find(|informer| !informer.has_synced()) {
            None => Ok(()),
            Some(informer) => Err(format!("the cache of {} has not synced", informer.kind().plural())),
        }))
    }
}
