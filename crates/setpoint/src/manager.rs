//! What a process of controllers shares, and the order in which it starts and stops.
//!
//! ```text
//!  start:  informers ─► events ─► the lease, if there is an election ─► controllers (each waits for its
//!          caches, then works)
//!  stop:   1 queues take no more ─► 2 workers finish what is queued ─► 3 the lease is released, events are
//!          written, informers and their connections end ─► 4 every task has been waited for
//! ```
//!
//! A replica that does not lead has its informers running and its queues filled: when it takes over, it works
//! at once.
//!
//! What always holds:
//! - [`Manager::run`] owns every task it starts, so dropping its future is a crash: nothing that it started
//!   runs any further;
//! - with an election, the context's client refuses writes while this replica does not lead.

mod caches;
mod connect;
mod order;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::adaptive::{Adaptive, Deciding, Stretched};
use crate::backoff::Backoff;
use crate::config::ControllerConfig;
use crate::controller::{Controller, Runnable};
use crate::health::Health;
use crate::informer::Informers;
use crate::leader::{self, ElectionConfig, Fence, InvalidElection, LeaderElection};
use crate::metrics::Metrics;
use crate::queue::limiter::{MaxOf, Overall, PerKey};
use crate::queue::{Queue, RateLimiter};
use crate::reconcile::{Reconciler, WorkKey};
use crate::recorder::{self, Events, Recorder};
use crate::shard::{Sharding, ShardingOptions, Shards, when_ready};
use crate::source::Source;
use crate::{Client, Runtime};
use order::{Order, Starting};

#[cfg(feature = "serve")]
pub(crate) use caches::heap;
pub use connect::ConnectError;
pub use order::OrderError;
pub use signal::stop_signal;

/// The shared parts that a controller is built from. Cheap to clone.
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
    /// Writes to the API server.
    pub client: Client,
    /// The shared caches.
    pub informers: Informers,
    /// Time and chance.
    pub runtime: Runtime,
    /// What Prometheus sees.
    pub metrics: Metrics,
    /// What the health endpoints say.
    pub health: Health,
    /// How everything is set up.
    pub config: Arc<ControllerConfig>,
    /// Which keys are this replica's, for [`Sharded`](crate::shard::Sharded) reconcilers; all of them unless
    /// the manager is sharded.
    pub shards: Shards,
    adaptive: Option<Adaptive>,
    events: Events,
    fence: Fence,
}

/// Runs controllers: informers first, then workers; on stop, workers drain, then informers end.
///
/// ```no_run
/// # async fn example<R: setpoint::Reconciler<Key = setpoint::Key>>(client: setpoint::Client,
/// #     source: std::sync::Arc<dyn setpoint::source::Source>, runtime: setpoint::Runtime, reconciler: R) {
/// use setpoint::{Controller, Manager, Queue};
/// use tokio_util::sync::CancellationToken;
/// let mut manager = Manager::new(client, source, runtime);
/// let queue = Queue::new("greeter", &manager.context().runtime);
/// manager.add(Controller::new("greeter", queue, reconciler).workers(2));
/// let stop = CancellationToken::new();
/// manager.run(stop).await;
/// # }
/// ```
pub struct Manager {
    context: Context,
    recording: recorder::Recording,
    runnables: Vec<Box<dyn Runnable>>,
    /// Writes whatever the fence says: leases, and events.
    unfenced: Client,
    fence: Fence,
    turns: Turns,
    order: Order,
}

/// How the replicas of this manager take turns.
enum Turns {
    /// There is one replica.
    Alone,
    Election(Box<LeaderElection>),
    Sharding(Box<Sharding>),
}

/// How long the events that are still to be written may take once everything else has stopped.
const FLUSH: Duration = Duration::from_secs(5);

impl Manager {
    /// A manager on a client, with the source its informers read from, set up by default.
    pub fn new(client: Client, source: Arc<dyn Source>, runtime: Runtime) -> Self {
        Self::assemble(client, source, runtime, Metrics::new(), ControllerConfig::default(), None)
    }

    /// The same, with these metrics, in which its client counts.
    pub fn with_metrics(client: Client, source: Arc<dyn Source>, runtime: Runtime, metrics: Metrics) -> Self {
        Self::assemble(client, source, runtime, metrics, ControllerConfig::default(), None)
    }

    fn assemble(
        client: Client,
        source: Arc<dyn Source>,
        runtime: Runtime,
        metrics: Metrics,
        config: ControllerConfig,
        adaptive: Option<Adaptive>,
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
        };
        let mut manager = Self {
            context,
            recording,
            runnables: Vec::new(),
            unfenced,
            fence,
            turns: Turns::Alone,
            order: Order::default(),
        };
        if let Some(expected) = manager.context.config.informer_config.cache_size {
            let Context { informers, metrics, runtime, .. } = manager.context.clone();
            manager.add(caches::CacheSizes { expected, informers, metrics, clock: runtime.clock });
        }
        if let Some(adaptive) = manager.context.adaptive.clone() {
            manager.add(Deciding { adaptive, metrics: manager.context.metrics.clone() });
        }
        manager
    }

    /// Starts `later` only when `earlier` is ready: something that was added too, or a check of readiness.
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

    /// Works only while it holds a lease; `component` is who the events about that come from.
    pub fn elect(&mut self, config: ElectionConfig, component: &'static str) -> Result<(), InvalidElection> {
        let Context { runtime, metrics, health, .. } = &self.context;
        let election = LeaderElection::new(&self.unfenced, runtime, config)?
            .with_metrics(metrics)
            .with_recorder(self.context.recorder(component))
            .with_fence(&self.fence);
        let check = election.check();
        health.add_livez("leaderElection", move || check());
        self.turns = Turns::Election(Box::new(election));
        Ok(())
    }

    /// Shares the keys of its [`Sharded`](crate::shard::Sharded) reconcilers with other replicas. Before
    /// controllers are built: they take [`Context::shards`] from its context.
    pub fn shard(&mut self, options: ShardingOptions) -> Result<(), InvalidElection> {
        let Context { runtime, metrics, .. } = &self.context;
        let sharding = Sharding::new(&self.unfenced, runtime, options, &self.fence)?.with_metrics(metrics);
        self.context.shards = sharding.shards().clone();
        self.turns = Turns::Sharding(Box::new(sharding));
        Ok(())
    }

    /// What keeps its writes from following a takeover: for clients that its controllers have of their own.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What its controllers are built from.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Adds something to run. Its metrics are registered in the context's, its readiness in the
    /// context's health.
    pub fn add(&mut self, mut runnable: impl Runnable) {
        runnable.observe(&self.context.metrics);
        if let Some(check) = runnable.readiness() {
            self.context.health.add_readyz(runnable.name(), move || check());
        }
        self.runnables.push(Box::new(runnable));
    }

    /// Runs everything until `stop`, then shuts down in order; or until the lease is lost, then drops the work.
    pub async fn run(self, stop: CancellationToken) -> leader::Ended {
        let Self { context, recording, runnables, mut turns, order, .. } = self;
        let stop = stop.child_token();
        context.health.add_shutdown(&stop);
        let ended = Ended::watched_by(&context.health);
        let informers = Stage::start("informers", &ended, {
            let informers = context.informers.clone();
            move |stop| async move { informers.run(stop).await }
        });
        let events = Stage::start("events", &ended, |stop| recording.run(stop));
        let names: BTreeSet<String> = runnables.iter().map(|runnable| runnable.name().to_owned()).collect();
        if let Turns::Sharding(sharding) = &mut turns {
            names.iter().for_each(|name| sharding.join_when(when_ready(&context.health, name.clone())));
        }
        let starting = Starting::new(order, &context.health, &context.runtime.clock, names);
        let (leading, always): (Vec<_>, Vec<_>) = runnables.into_iter().partition(|one| one.needs_leader());
        let patience = context.config.shutdown_timeout;
        let crew = |runnables, stop: &CancellationToken| {
            Crew::start(runnables, &context.metrics, &ended, &starting, stop)
        };
        let standing = crew(always, &stop);
        let work = async |stop: CancellationToken| {
            let crew = crew(leading, &stop);
            stop.cancelled().await;
            crew.finish(patience).await;
        };
        let end = match turns {
            Turns::Election(election) => election.run(stop.clone(), work).await,
            Turns::Sharding(sharding) => sharding.run(stop.clone(), work).await,
            Turns::Alone => {
                work(stop.clone()).await;
                leader::Ended::Stopped
            }
        };
        stop.cancel();
        standing.finish(patience).await;
        if tokio::time::timeout(FLUSH, events.end()).await.is_err() {
            tracing::warn!("not all events could be written within {FLUSH:?}");
        }
        informers.end().await;
        end
    }
}

/// Things that run side by side. Dropping it ends them.
struct Crew(JoinSet<()>);

impl Crew {
    fn start(
        runnables: Vec<Box<dyn Runnable>>,
        metrics: &Metrics,
        ended: &Ended,
        starting: &Starting,
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
                        () = starting.turn_of(&name) => {}
                        () = stopped.cancelled() => return,
                    }
                    counted(metrics, name, runnable.run(stopped)).await;
                }
            };
            tasks.spawn(ended.unless_stopped(name, stop.clone(), running));
        }
        Self(tasks)
    }

    /// Waits for those that were told to stop, but not for ever.
    async fn finish(mut self, patience: Duration) {
        if tokio::time::timeout(patience, finish(&mut self.0)).await.is_err() {
            tracing::warn!(left = self.0.len(), "not everything stopped within {patience:?}");
            self.0.shutdown().await;
        }
    }
}

impl Context {
    /// The same context for a part that speaks to the API server with a client of its own: its requests and the
    /// events that it records are sent by that client, while this replica leads.
    ///
    /// ```
    /// # fn example(manager: &setpoint::Manager, own: setpoint::Client) {
    /// let context = manager.context().acting_as(own);
    /// let recorder = context.recorder("greeter-controller");
    /// # }
    /// ```
    pub fn acting_as(&self, client: Client) -> Self {
        let events = self.events.written_by(client.clone());
        Self { client: client.with_fence(&self.fence), events, ..self.clone() }
    }

    /// A recorder of events that come from `component` (`replicaset-controller`).
    pub fn recorder(&self, component: &'static str) -> Recorder {
        self.events.recorder(component)
    }

    /// A queue whose waits after failures are the configured ones.
    ///
    /// ```
    /// # fn example(context: &setpoint::Context) {
    /// let queue = context.queue::<setpoint::Key>("greeter");
    /// # }
    /// ```
    pub fn queue<K: WorkKey>(&self, name: &'static str) -> Queue<K> {
        let config = &self.config.queue_config;
        let backoff = Backoff::doubling(config.base_delay, config.max_delay).after(1);
        let mut limiter: Arc<dyn RateLimiter<K>> = Arc::new(PerKey::new(backoff));
        if let Some(rate) = config.rate_limiter_qps {
            // Ten seconds' worth at once, as Kubernetes' own queues have it.
            let overall = Overall::new(self.runtime.clock.clone(), rate, (rate * 10.0).ceil() as u32);
            limiter = Arc::new(MaxOf::new(vec![limiter, Arc::new(overall)]));
        }
        if let Some(adaptive) = self.adaptive.clone() {
            limiter = Arc::new(Stretched { inner: limiter, adaptive });
        }
        Queue::with_rate_limiter(name, &self.runtime, limiter)
    }

    /// A controller with the configured workers, bounds and timeouts.
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
            controller = controller.adaptive(adaptive, config.reconcile_config.max_concurrent);
        }
        controller
    }
}

/// A task with a stop of its own.
struct Stage {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Stage {
    fn start<F: Future<Output = ()> + Send + 'static>(
        name: &str,
        ended: &Ended,
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

/// Shows a controller as running as long as it does.
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
        tracing::error!(%error, "a part of the manager ended");
    }
}

/// What ended although nobody had stopped it: the process is alive no longer in the sense that counts.
#[derive(Clone, Default)]
struct Ended {
    names: Arc<Mutex<Vec<String>>>,
}

/// Notes the end of a part, by return or by panic, if it was not asked to end.
struct Early {
    ended: Ended,
    name: String,
    stop: CancellationToken,
}

impl Ended {
    fn watched_by(health: &Health) -> Self {
        let ended = Self::default();
        let names = ended.names.clone();
        health.add_livez("controllers", move || match &names.lock()[..] {
            [] => Ok(()),
            names => Err(format!("ended on their own: {}", names.join(", "))),
        });
        ended
    }

    /// Runs a part and notes its end if nobody asked for it.
    fn unless_stopped<F: Future<Output = ()>>(
        &self,
        name: String,
        stop: CancellationToken,
        run: F,
    ) -> impl Future<Output = ()> + use<F> {
        let mut early = Early { ended: self.clone(), name, stop };
        async move {
            run.await;
            early.note();
        }
    }
}

impl Early {
    fn note(&mut self) {
        if !self.stop.is_cancelled() {
            tracing::error!(name = self.name, "ended on its own");
            self.ended.names.lock().push(std::mem::take(&mut self.name));
        }
    }
}

impl Drop for Early {
    /// Dropped by a panic, or with the whole manager; the latter is nobody's fault.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.note();
        }
    }
}
