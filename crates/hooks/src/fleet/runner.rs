//! Runs one parent controller for each CompositeController and DecoratorController.
//!
//! ```text
//!  wanted ─► starting ─► running ─► stopping (its spec has changed, or it is gone) ─► ended ─► wanted …
//! ```
//!
//! Invariants:
//! - All tasks belong to the runner's future. Dropping it ends them, as in a crash.
//! - Two controllers of one name never run at the same time.
//! - When a controller ends, its watches are closed, unless others share them.
//! - In a sharded manager, each replica handles its parents, and one of them speaks for a controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint::shard::Sharded;
use setpoint::{Context, EventType, Informer, Key, Kind, Object, Recorder, Runnable};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{ControllerKey, Kinds};
use crate::Options;
use crate::apply::Ledger;
use crate::names::COMPONENT;
use crate::parents::{Observer, ParentKey, Parents, Related, Setup, SharedInformers, Watched, Wiring, watch};

/// How many parents of one controller are reconciled concurrently, as in Metacontroller.
pub(crate) const WORKERS: usize = 5;
/// The maximum number of controller names, which are leaked because metrics and logs are labelled with them. Further
/// controllers share a label.
const MAX_NAMES: usize = 1024;

/// The desired controllers.
pub(super) struct Fleet {
    context: Context,
    informers: SharedInformers,
    pub(super) kinds: Kinds,
    recorder: Recorder,
    observer: Option<Arc<dyn Observer>>,
    workers: usize,
    ledger: Arc<Ledger>,
    /// Bounded by the CompositeControllers and DecoratorControllers in the cluster.
    wanted: Mutex<BTreeMap<ControllerKey, Arc<Launch>>>,
    changed: Notify,
}

/// A controller to run.
pub(super) struct Launch {
    pub(super) object: Object,
    pub(super) setup: Arc<Setup>,
    pub(super) identity: Vec<String>,
}

impl Fleet {
    pub(super) fn new(context: &Context, options: &Options) -> Self {
        Self {
            informers: SharedInformers::new(context.informers.separate()),
            kinds: Kinds::new(&context.client, &context.runtime.clock),
            recorder: context.recorder(COMPONENT),
            observer: options.observer.clone(),
            workers: options.workers.max(1),
            ledger: Arc::default(),
            wanted: Mutex::default(),
            changed: Notify::new(),
            context: context.clone(),
        }
    }

    pub(super) fn wanted(&self, key: &ControllerKey) -> Option<Arc<Launch>> {
        self.wanted.lock().get(key).cloned()
    }

    pub(super) fn want(&self, key: &ControllerKey, launch: Launch) {
        self.wanted.lock().insert(key.clone(), Arc::new(launch));
        self.changed.notify_one();
    }

    /// Returns whether there was such a controller.
    pub(super) fn give_up(&self, key: &ControllerKey) -> bool {
        let was_there = self.wanted.lock().remove(key).is_some();
        self.changed.notify_one();
        was_there
    }

    /// Whether this replica writes the status and the events of a controller. All replicas run it, each for its parents.
    pub(super) fn speaks_for(&self, key: &ControllerKey) -> bool {
        self.context.shards.owns(&Key::cluster(&key.name))
    }

    fn event(&self, key: &ControllerKey, launch: &Launch, reason: &str, what: &str) {
        if !self.speaks_for(key) {
            return;
        }
        let message = format!("{what} controller: {}", key.name);
        self.recorder.event(&key.of.kind(), &launch.object, EventType::Normal, reason, message);
    }

    /// Starts a controller. The future ends when it has stopped and closed its watches.
    fn start(
        self: &Arc<Self>,
        key: &ControllerKey,
        launch: Arc<Launch>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        self.event(key, &launch, "Starting", "Starting");
        let name = label(&format!("{}-{}", key.of.name(), key.name), key.of.name());
        let queue = self.context.queue::<ParentKey>(name);
        let Watched { parents, children, revisions, followed } =
            watch(&launch.setup, &self.informers, &queue);
        let related = Arc::new(Related::new(&self.informers, &queue));
        let caches: Vec<Informer> =
            parents.values().chain(children.values()).chain(&revisions).cloned().collect();
        let known = parents.clone();
        let all_parents = move || known.iter().flat_map(|(kind, cache)| keys_of(kind, cache)).collect();
        let wiring = Wiring {
            client: self.context.client.clone(),
            clock: self.context.runtime.clock.clone(),
            recorder: self.recorder.clone(),
            parents,
            children,
            revisions,
            related: related.clone(),
            kinds: self.kinds.clone(),
            ledger: self.ledger.clone(),
            observer: self.observer.clone(),
            stop: stop.clone(),
        };
        let reconciler = Parents::new(launch.setup.clone(), wiring);
        let (shards, place) = (&self.context.shards, |at: &ParentKey| at.key.clone());
        let reconciler = Sharded::placed(shards, &queue, place, all_parents, reconciler);
        let controller = self.context.controller(name, queue, reconciler).workers(self.workers);
        let mut controller = controller.persistent().reads_own_writes();
        for cache in &caches {
            controller = controller.waits_for(cache);
        }
        controller.observe(&self.context.metrics);
        self.event(key, &launch, "Started", "Started");
        let (fleet, key) = (self.clone(), key.clone());
        async move {
            Box::new(controller).run(stop).await;
            fleet.event(&key, &launch, "Stopping", "Stopping");
            fleet.informers.unfollow(followed.into_iter().chain(related.end()));
            fleet.event(&key, &launch, "Stopped", "Stopped");
        }
        .boxed()
    }
}

fn keys_of(kind: &Kind, cache: &Informer) -> Vec<ParentKey> {
    let all = cache.objects().list(None).into_iter();
    all.map(|parent| ParentKey { kind: kind.clone(), key: parent.key().clone() }).collect()
}

/// Returns the name of a controller's queue, for as long as this process runs. If there are too many, they share
/// `otherwise`.
pub(crate) fn label(name: &str, otherwise: &'static str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock();
    if let Some(label) = known.get(name) {
        return label;
    }
    if known.len() >= MAX_NAMES {
        return otherwise;
    }
    let label: &'static str = Box::leak(name.to_owned().into_boxed_str());
    known.insert(label);
    label
}

/// Runs the fleet.
pub(super) struct Runner {
    fleet: Arc<Fleet>,
}

/// A running controller.
struct Running {
    launch: Arc<Launch>,
    stop: CancellationToken,
}

impl Runner {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet }
    }

    fn start_and_stop(
        &self,
        running: &mut BTreeMap<ControllerKey, Running>,
        tasks: &mut JoinSet<ControllerKey>,
    ) {
        let wanted = self.fleet.wanted.lock().clone();
        for (key, one) in running.iter() {
            if !wanted.get(key).is_some_and(|launch| Arc::ptr_eq(launch, &one.launch)) {
                one.stop.cancel();
            }
        }
        for (key, launch) in wanted {
            if running.contains_key(&key) {
                continue;
            }
            let stop = CancellationToken::new();
            let controller = self.fleet.start(&key, launch.clone(), stop.clone());
            running.insert(key.clone(), Running { launch, stop });
            tasks.spawn(async move {
                controller.await;
                key
            });
        }
    }

    async fn manage(&self, stop: CancellationToken) {
        let (mut running, mut tasks) = (BTreeMap::new(), JoinSet::new());
        loop {
            if stop.is_cancelled() {
                running.values().for_each(|one: &Running| one.stop.cancel());
                if running.is_empty() {
                    return;
                }
            } else {
                self.start_and_stop(&mut running, &mut tasks);
            }
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stop.is_cancelled() => {}
                () = self.fleet.changed.notified() => {}
                Some(ended) = tasks.join_next() => match ended {
                    Ok(key) => _ = running.remove(&key),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                },
            }
        }
    }
}

impl Runnable for Runner {
    fn name(&self) -> &str {
        "hook-controllers"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            let informers = self.fleet.informers.all().clone();
            let ended = CancellationToken::new();
            let reading = informers.run(ended.clone());
            let managing = async {
                self.manage(stop).await;
                ended.cancel();
            };
            tokio::join!(reading, managing);
        }
        .boxed()
    }
}
