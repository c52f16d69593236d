//! The manager: everything the controllers of a process share, and the order of startup and shutdown.
//!
//! ```text
//!  start:  informers ─► events ─► leader election, if enabled ─► controllers (each waits for its caches)
//!  stop:   1 queues accept nothing more ─► 2 workers drain them ─► 3 the lease is released, events are
//!          flushed, informers and their connections close ─► 4 every task has ended
//! ```
//!
//! A standby replica runs its informers and fills its queues, so it starts working as soon as it takes over.
//!
//! Invariants:
//! - [`Manager::run`] owns every task it starts. Dropping its future acts like a crash: everything it started ends.
//! - With leader election, the context's client rejects writes while this replica is not the leader.

mod caches;
mod connect;
mod order;
mod scope;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::adaptive::{AdaptiveLimits, AdaptiveLoop, Stretched};
use crate::backoff::Backoff;
use crate::clusters::Gate;
use crate::config::ControllerConfig;
use crate::controller::{Caches, Controller, IntoRunnables, Runnable};
use crate::health::Health;
use crate::informer::Informers;
use crate::leader::{self, ElectionConfig, Fence, InvalidElectionConfig, LeaderElection};
use crate::metrics::Metrics;
use crate::queue::limiter::{Bucket, MaxOf, PerKeyBackoff};
use crate::queue::{Queue, RateLimiter};
use crate::reconcile::{Reconciler, WorkKey};
use crate::recorder::{self, Events, Recorder};
use crate::shard::{Sharding, ShardingOptions, Shards, when_ready};
use crate::source::Source;
use crate::{Api, Client, Runtime};
use order::{Order, Startup};

#[cfg(feature = "serve")]
pub(crate) use caches::heap;
pub use connect::{ConnectError, RunError};
pub use order::OrderError;
pub use signal::stop_signal;

/// The shared parts a controller is built from. Cheap to clone.
///
/// ```
/// # fn example(manager: setpoint::Manager) {
/// let context = manager.context();
/// let recorder = context.recorder("greeter-controller");
/// let queue = setpoint::Queue::<setpoint::Key>::new("greeter", &context.runtime);
/// # }
/// ```
#[derive(Clone)]
pub struct Context {
    /// Typed reads and writes. Applies use the controller's name as field manager.
    pub api: Api,
    /// The client for the API server, for kinds that are only known at run time and for everything that `api` does not
    /// offer.
    pub client: Client,
    /// The shared caches.
    pub informers: Informers,
    /// The clock and the random number generator.
    pub runtime: Runtime,
    /// The metrics exposed to Prometheus.
    pub metrics: Metrics,
    /// The health checks.
    pub health: Health,
    /// The configuration.
    pub config: Arc<ControllerConfig>,
    /// The keys assigned to this replica, for [`Sharded`](crate::shard::Sharded) reconcilers. All keys unless the
    /// manager is sharded.
    pub shards: Shards,
    adaptive: Option<AdaptiveLimits>,
    events: Events,
    fence: Fence,
    /// The name of the controller, or of the manager.
    name: &'static str,
    /// The caches that have been read through this context.
    caches: Caches,
    /// The cluster of a fleet that this leads to.
    cluster: Option<Arc<str>>,
    /// Where the keys of a controller of a fleet wait.
    gate: Option<Gate>,
}

/// The manager of a process: it runs the controllers and everything they share. Informers start before workers. On
/// shutdown, workers drain first, then everything that runs in every replica stops, such as webhooks, which the last
/// writes may need. Informers stop last.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Namespace;
/// use setpoint::prelude::*;
///
/// fn greeter(context: &Context) -> Controller {
///     Controller::for_::<Namespace>(context, "greeter").run(greet)
/// }
///
/// async fn greet(namespace: Cached<Namespace>, _: Context) -> Result<(), ReconcileError> {
///     println!("hello, {}", namespace.name());
///     Ok(())
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// Manager::from_env("greeter").await?.with(greeter).run_until_signal().await?;
/// # Ok(()) }
/// ```
pub struct Manager {
    context: Context,
    recording: recorder::Recording,
    runnables: Vec<Box<dyn Runnable>>,
    /// Bypasses the fence, for leases and events.
    unfenced: Client,
    fence: Fence,
    coordination: Coordination,
    order: Order,
}

/// How the replicas coordinate.
enum Coordination {
    /// A single replica.
    Alone,
    Election(Box<LeaderElection>),
    Sharding(Box<Sharding>),
}

/// The name of a manager that was created without one.
const DEFAULT_NAME: &str = "setpoint";

/// How long writing the remaining events may take after everything else has stopped.
const FLUSH: Duration = Duration::from_secs(5);

impl Manager {
    /// Creates a manager with the default configuration. Its informers read from `source`.
    pub fn new(client: Client, source: Arc<dyn Source>, runtime: Runtime) -> Self {
        Self::assemble(client, source, runtime, Metrics::new(), ControllerConfig::default(), None)
    }

    /// Like [`new`](Self::new), but registers metrics in `metrics`, which should be the registry that the client uses.
    pub fn with_metrics(client: Client, source: Arc<dyn Source>, runtime: Runtime, metrics: Metrics) -> Self {
        Self::assemble(client, source, runtime, metrics, ControllerConfig::default(), None)
    }

    fn assemble(
        client: Client,
        source: Arc<dyn Source>,
        runtime: Runtime,
        metrics: Metrics,
        config: ControllerConfig,
        adaptive: Option<AdaptiveLimits>,
    ) -> Self {
        let informers = Informers::new(source, runtime.clone());
        informers.observe(&metrics);
        if let Some(period) = config.reconcile_config.resync_period {
            informers.resync_every(period);
        }
        if let Some(period) = config.informer_config.consistency_check_period {
            informers.check_consistency_every(period);
        }
        let (events, recording) = recorder::channel(client.clone(), runtime.clone(), metrics.clone());
        let (unfenced, fence) = (client.clone(), Fence::open(&runtime.clock));
        let client = client.with_fence(&fence);
        let (health, config) = (Health::new(), Arc::new(config));
        let shards = Shards::whole(&runtime.clock);
        let context = Context {
            api: Api::new(client.clone(), DEFAULT_NAME),
            client,
            informers,
            runtime,
            metrics,
            health,
            config,
            shards,
            adaptive,
            events,
            fence: fence.clone(),
            name: DEFAULT_NAME,
            caches: Caches::default(),
            cluster: None,
            gate: None,
        };
        let mut manager = Self {
            context,
            recording,
            runnables: Vec::new(),
            unfenced,
            fence,
            coordination: Coordination::Alone,
            order: Order::default(),
        };
        if let Some(expected) = manager.context.config.informer_config.cache_size {
            let Context { informers, metrics, runtime, .. } = manager.context.clone();
            manager.add(caches::CacheSizes { expected, informers, metrics, clock: runtime.clock });
        }
        if let Some(adaptive) = manager.context.adaptive.clone() {
            manager.add(AdaptiveLoop { adaptive, metrics: manager.context.metrics.clone() });
        }
        manager
    }

    /// Starts `later` only once `earlier` is ready. `earlier` is another runnable or a readiness check.
    ///
    /// ```
    /// # fn example(mut manager: setpoint::Manager) -> Result<(), setpoint::manager::OrderError> {
    /// manager.context().health.add_readyz("database", || Err("not reached yet".into()));
    /// manager.start_after("backup-controller", "database")?;
    /// # Ok(()) }
    /// ```
    pub fn start_after(&mut self, later: &str, earlier: &str) -> Result<(), OrderError> {
        if !self.is_added(later) {
            return Err(OrderError::Unknown(later.into()));
        }
        if !self.is_added(earlier) && self.context.health.readyz().only(earlier).is_none() {
            return Err(OrderError::Unknown(earlier.into()));
        }
        self.order.add(later, earlier)
    }

    fn is_added(&self, name: &str) -> bool {
        self.runnables.iter().any(|runnable| runnable.name() == name)
    }

    /// Enables leader election. Its events name `component` as their source.
    pub fn elect(
        &mut self,
        config: ElectionConfig,
        component: &'static str,
    ) -> Result<(), InvalidElectionConfig> {
        let Context { runtime, metrics, health, .. } = &self.context;
        let election = LeaderElection::new(&self.unfenced, runtime, config)?
            .with_metrics(metrics)
            .with_recorder(self.context.recorder(component))
            .with_fence(&self.fence);
        let check = election.check();
        health.add_livez("leaderElection", move || check());
        self.coordination = Coordination::Election(Box::new(election));
        Ok(())
    }

    /// Splits the keys of [`Sharded`](crate::shard::Sharded) reconcilers among replicas. Call this before building
    /// controllers, because they take [`Context::shards`] from the context.
    pub fn shard(&mut self, options: ShardingOptions) -> Result<(), InvalidElectionConfig> {
        let Context { runtime, metrics, .. } = &self.context;
        let sharding = Sharding::new(&self.unfenced, runtime, options, &self.fence)?.with_metrics(metrics);
        self.context.shards = sharding.shards().clone();
        self.coordination = Coordination::Sharding(Box::new(sharding));
        Ok(())
    }

    /// Returns the fence that blocks writes after another replica has taken over, for controllers with their own
    /// clients.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Returns the context that controllers are built from.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Adds what `build` returns: a controller, another runnable, or several.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Node;
    /// use setpoint::prelude::*;
    /// # async fn watch(_: Cached<Node>, _: Context) -> Result<(), ReconcileError> { Ok(()) }
    /// fn nodes(context: &Context) -> Controller {
    ///     Controller::for_::<Node>(context, "node-watcher").run(watch)
    /// }
    /// # fn example(manager: Manager) {
    /// let manager = manager.with(nodes);
    /// # }
    /// ```
    pub fn with<R: IntoRunnables>(mut self, build: impl FnOnce(&Context) -> R) -> Self {
        let runnables = build(&self.context).into_runnables();
        runnables.into_iter().for_each(|runnable| self.add(runnable));
        self
    }

    /// Adds a runnable. Registers its metrics and its readiness check in the context.
    pub fn add(&mut self, mut runnable: impl Runnable) {
        runnable.observe(&self.context.metrics);
        if let Some(check) = runnable.readiness() {
            self.context.health.add_readyz(runnable.name(), move || check());
        }
        self.runnables.push(Box::new(runnable));
    }

    /// Runs everything until `stop` is cancelled, then shuts down in order. If the lease is lost, drops all work
    /// instead.
    pub async fn run(self, stop: CancellationToken) -> leader::ExitReason {
        let Self { context, recording, runnables, mut coordination, order, .. } = self;
        let stop = stop.child_token();
        context.health.add_shutdown(&stop);
        let ended = UnexpectedExits::watched_by(&context.health);
        let informers = ManagedTask::start("informers", &ended, {
            let informers = context.informers.clone();
            move |stop| async move { informers.run(stop).await }
        });
        let events = ManagedTask::start("events", &ended, |stop| recording.run(stop));
        let names: BTreeSet<String> = runnables.iter().map(|runnable| runnable.name().to_owned()).collect();
        if let Coordination::Sharding(sharding) = &mut coordination {
            names.iter().for_each(|name| sharding.join_when(when_ready(&context.health, name.clone())));
        }
        let starting = Startup::new(order, &context.health, &context.runtime.clock, names);
        let (leading, always): (Vec<_>, Vec<_>) = runnables.into_iter().partition(|one| one.needs_leader());
        let shutdown_timeout = context.config.shutdown_timeout;
        let start_all = |runnables, stop: &CancellationToken| {
            TaskSet::start(runnables, &context.metrics, &ended, &starting, stop)
        };
        let serving = CancellationToken::new();
        let tasks = start_all(always, &serving);
        let work = async |stop: CancellationToken| {
            let leading = start_all(leading, &stop);
            stop.cancelled().await;
            leading.finish(shutdown_timeout).await;
        };
        let end = match coordination {
            Coordination::Election(election) => election.run(stop.clone(), work).await,
            Coordination::Sharding(sharding) => sharding.run(stop.clone(), work).await,
            Coordination::Alone => {
                work(stop.clone()).await;
                leader::ExitReason::Stopped
            }
        };
        stop.cancel();
        serving.cancel();
        tasks.finish(shutdown_timeout).await;
        if tokio::time::timeout(FLUSH, events.end()).await.is_err() {
            tracing::warn!("not all events were written within {FLUSH:?}");
        }
        informers.end().await;
        end
    }
}

/// A set of concurrent tasks. Dropping it ends them.
struct TaskSet(JoinSet<()>);

impl TaskSet {
    fn start(
        runnables: Vec<Box<dyn Runnable>>,
        metrics: &Metrics,
        ended: &UnexpectedExits,
        starting: &Startup,
        stop: &CancellationToken,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for runnable in runnables {
            let name = runnable.name().to_owned();
            let (starting, metrics, stopped) = (starting.clone(), metrics.clone(), stop.clone());
            let running = {
                let name = name.clone();
                async move {
                    tokio::select! {
                        biased;
                        () = starting.wait_for_dependencies(&name) => {}
                        () = stopped.cancelled() => return,
                    }
                    counted(metrics, name, runnable.run(stopped)).await;
                }
            };
            tasks.spawn(ended.unless_stopped(name, stop.clone(), running));
        }
        Self(tasks)
    }

    /// Waits for the stopped tasks to end, for at most `shutdown_timeout`.
    async fn finish(mut self, shutdown_timeout: Duration) {
        if tokio::time::timeout(shutdown_timeout, finish(&mut self.0)).await.is_err() {
            tracing::warn!(left = self.0.len(), "not everything stopped within {shutdown_timeout:?}");
            self.0.shutdown().await;
        }
    }
}

impl Context {
    /// Returns the same context with a different client, for a controller with its own credentials. Requests and events
    /// go through that client, and only while this replica leads.
    ///
    /// ```
    /// # fn example(manager: &setpoint::Manager, own: setpoint::Client) {
    /// let context = manager.context().acting_as(own);
    /// let recorder = context.recorder("greeter-controller");
    /// # }
    /// ```
    pub fn acting_as(&self, client: Client) -> Self {
        let events = self.events.written_by(client.clone());
        let client = client.with_fence(&self.fence);
        Self { api: Api::new(client.clone(), self.name), client, events, ..self.clone() }
    }

    /// Creates an event recorder for `component` (for example `replicaset-controller`).
    pub fn recorder(&self, component: &'static str) -> Recorder {
        self.events.recorder(component)
    }

    /// Creates a queue with the configured rate limits.
    ///
    /// ```
    /// # fn example(context: &setpoint::Context) {
    /// let queue = context.queue::<setpoint::Key>("greeter");
    /// # }
    /// ```
    pub fn queue<K: WorkKey>(&self, name: &'static str) -> Queue<K> {
        let config = &self.config.queue_config;
        let backoff = Backoff::doubling(config.base_delay, config.max_delay).after(1);
        let mut limiter: Arc<dyn RateLimiter<K>> = Arc::new(PerKeyBackoff::new(backoff));
        if let Some(rate) = config.rate_limiter_qps {
            // The burst is ten seconds' worth, as in Kubernetes' own queues.
            let overall = Bucket::new(self.runtime.clock.clone(), rate, (rate * 10.0).ceil() as u32);
            limiter = Arc::new(MaxOf::new(vec![limiter, Arc::new(overall)]));
        }
        if let Some(adaptive) = self.adaptive.clone() {
            limiter = Arc::new(Stretched { inner: limiter, adaptive });
        }
        Queue::with_rate_limiter(name, &self.runtime, limiter)
    }

    /// Creates a controller with the configured workers, queue size and timeouts.
    ///
    /// ```
    /// # fn example<R: setpoint::Reconciler<Key = setpoint::Key>>(context: &setpoint::Context, reconciler: R) {
    /// let queue = context.queue("greeter");
    /// let controller = context.controller("greeter", queue, reconciler);
    /// # }
    /// ```
    pub fn controller<K: WorkKey>(
        &self,
        name: &'static str,
        queue: Queue<K>,
        reconciler: impl Reconciler<Key = K>,
    ) -> Controller<K> {
        let config = &self.config;
        let mut controller = Controller::new(name, queue, reconciler)
            .workers(config.workers)
            .drain_within(config.shutdown_timeout.mul_f64(2.0 / 3.0));
        if let Some(keys) = config.queue_size {
            controller = controller.queue_size(keys);
        }
        if let Some(timeout) = config.reconcile_config.timeout {
            controller = controller.timeout(timeout);
        }
        if let Some(retries) = config.queue_config.max_retries {
            controller = controller.max_retries(retries);
        }
        if let Some(adaptive) = &self.adaptive {
            controller = controller.adaptive_workers(adaptive, config.reconcile_config.max_concurrent);
        }
        controller
    }
}

/// A task with its own stop token.
struct ManagedTask {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl ManagedTask {
    fn start<F: Future<Output = ()> + Send + 'static>(
        name: &str,
        ended: &UnexpectedExits,
        run: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(ended.unless_stopped(name.to_owned(), stop.clone(), run(stop.clone())));
        Self { stop, task }
    }

    async fn end(mut self) {
        self.stop.cancel();
        finish(&mut self.task).await;
    }
}

async fn finish(tasks: &mut JoinSet<()>) {
    while let Some(result) = tasks.join_next().await {
        log_panic(result);
    }
}

/// Reports a controller as running for as long as it runs.
async fn counted(metrics: Metrics, name: String, run: impl Future<Output = ()>) {
    let show = |running: f64| {
        let help = "Indicates where instances of a controller are currently running";
        metrics.set_gauge(
            "running_managed_controllers",
            help,
            &[("manager", "setpoint"), ("name", &name)],
            running,
        );
    };
    show(1.0);
    run.await;
    show(0.0);
}

fn log_panic(result: Result<(), JoinError>) {
    if let Err(error) = result.map_err(|error| error.to_string()) {
        tracing::error!(%error, "a runnable ended");
    }
}

/// Runnables that ended without being stopped. They fail the liveness check.
#[derive(Clone, Default)]
struct UnexpectedExits {
    names: Arc<Mutex<Vec<String>>>,
}

/// A guard that records if a runnable ends, by return or by panic, without being stopped.
struct ExitGuard {
    ended: UnexpectedExits,
    name: String,
    stop: CancellationToken,
}

impl UnexpectedExits {
    fn watched_by(health: &Health) -> Self {
        let ended = Self::default();
        let names = ended.names.clone();
        health.add_livez("controllers", move || match &names.lock()[..] {
            [] => Ok(()),
            names => Err(format!("ended on their own: {}", names.join(", "))),
        });
        ended
    }

    /// Runs a runnable and records if it ends without being stopped.
    fn unless_stopped<F: Future<Output = ()>>(
        &self,
        name: String,
        stop: CancellationToken,
        run: F,
    ) -> impl Future<Output = ()> + use<F> {
        let mut early = ExitGuard { ended: self.clone(), name, stop };
        async move {
            run.await;
            early.note();
        }
    }
}

impl ExitGuard {
    fn note(&mut self) {
        if !self.stop.is_cancelled() {
            tracing::error!(name = self.name, "ended unexpectedly");
            self.ended.names.lock().push(std::mem::take(&mut self.name));
        }
    }
}

impl Drop for ExitGuard {
    /// Runs on a panic, or when the whole manager is dropped. The latter is not recorded as a failure.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.note();
        }
    }
}
