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

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::controller::Runnable;
use crate::health::Health;
use crate::informer::Informers;
use crate::leader::{self, ElectionConfig, Fence, InvalidElection, LeaderElection};
use crate::metrics::Metrics;
use crate::recorder::{self, Events, Recorder};
use crate::source::Source;
use crate::{Client, Runtime};

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
    events: Events,
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
    election: Option<LeaderElection>,
}

/// How long everything that runs may take to stop: half as long again as a controller's queue may.
const SHUTDOWN: Duration = Duration::from_secs(45);
/// How long the events that are still to be written may take once everything else has stopped.
const FLUSH: Duration = Duration::from_secs(5);

impl Manager {
    /// A manager on a client, with the source its informers read from.
    pub fn new(client: Client, source: Arc<dyn Source>, runtime: Runtime) -> Self {
        let informers = Informers::new(source, runtime.clone());
        let metrics = Metrics::new();
        informers.observe(&metrics);
        let (events, recording) = recorder::channel(client.clone(), runtime.clone(), metrics.clone());
        let (unfenced, fence) = (client.clone(), Fence::open(&runtime.clock));
        let client = client.with_fence(&fence);
        let context = Context { client, informers, runtime, metrics, health: Health::new(), events };
        Self { context, recording, runnables: Vec::new(), unfenced, fence, election: None }
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
        self.election = Some(election);
        Ok(())
    }

    /// What its controllers are built from.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Adds something to run. Its figures show in the context's metrics, its readiness in the
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
        let Self { context, recording, runnables, election, .. } = self;
        let ended = Ended::watched_by(&context.health);
        let informers = Stage::start("informers", &ended, {
            let informers = context.informers.clone();
            move |stop| async move { informers.run(stop).await }
        });
        let events = Stage::start("events", &ended, |stop| recording.run(stop));
        let (leading, always): (Vec<_>, Vec<_>) = runnables.into_iter().partition(|one| one.needs_leader());
        let stop = stop.child_token();
        let standing = Crew::start(always, &context.metrics, &ended, &stop);
        let work = async |stop: CancellationToken| {
            let crew = Crew::start(leading, &context.metrics, &ended, &stop);
            stop.cancelled().await;
            crew.finish().await;
        };
        let end = match election {
            Some(election) => election.run(stop.clone(), work).await,
            None => {
                work(stop.clone()).await;
                leader::Ended::Stopped
            }
        };
        stop.cancel();
        standing.finish().await;
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
        stop: &CancellationToken,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for runnable in runnables {
            let name = runnable.name().to_owned();
            let running = counted(metrics.clone(), name.clone(), runnable.run(stop.clone()));
            tasks.spawn(ended.unless_stopped(name, stop.clone(), running));
        }
        Self(tasks)
    }

    /// Waits for those that were told to stop, but not for ever.
    async fn finish(mut self) {
        if tokio::time::timeout(SHUTDOWN, finish(&mut self.0)).await.is_err() {
            tracing::warn!(left = self.0.len(), "not everything stopped within {SHUTDOWN:?}");
            self.0.shutdown().await;
        }
    }
}

impl Context {
    /// A recorder of events that come from `component` (`replicaset-controller`).
    pub fn recorder(&self, component: &'static str) -> Recorder {
        self.events.recorder(component)
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
