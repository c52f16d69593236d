//! Stage 5: one pipeline per kind and selection, shared by every controller.
//!
//! What always holds:
//! - one task fills the cache and notifies the handlers, in the order of each object's changes; when a
//!   handler is notified of a state, the cache shows that state or a newer one;
//! - a handler added at any time gets everything in the cache first, and misses nothing after;
//! - an update never changes an object's uid: one that was replaced under its name is deleted, then
//!   added;
//! - all tasks belong to the future of [`Informers::run`] and end when it is dropped.

mod consistency;
mod pipeline;
mod registration;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::pipeline::Pipeline;
use self::registration::Registrations;
use crate::handler::Handler;
use crate::indexer::{IndexFn, Indexer};
use crate::lister::Lister;
use crate::metrics::histogram::{Histogram, QUEUE_SECONDS};
use crate::metrics::{InformerMetrics, InformerStats, Metrics};
use crate::source::{Selection, Source};
use crate::{Kind, Object, Runtime, View};

pub use self::registration::Registration;

/// Changes an object before it is cached, to leave out what nobody reads. Key, uid and version stay.
pub type Transform = Arc<dyn Fn(Object) -> Object + Send + Sync>;

/// All informers of a process: one per kind and selection, made on first request. Cheap to clone.
///
/// ```no_run
/// # async fn example(source: std::sync::Arc<dyn setpoint::source::Source>, runtime: setpoint::Runtime) {
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint::{Informers, Kind, source::Selection};
/// use tokio_util::sync::CancellationToken;
/// let informers = Informers::new(source, runtime);
/// let pods = informers.of::<Pod>();
/// let metadata = Selection { metadata_only: true, ..Selection::default() };
/// let owners = informers.select(&Kind::of::<Pod>(), metadata);
/// informers.run(CancellationToken::new()).await; // usually a manager does this
/// # }
/// ```
#[derive(Clone)]
pub struct Informers {
    shared: Arc<Factory>,
    requested: Option<Requested>,
}

/// The kinds and selections that were requested through some handle of [`Informers`]: what a part of the process
/// reads. Cheap to clone.
///
/// ```
/// # fn example(informers: &setpoint::Informers) {
/// use k8s_openapi::api::core::v1::Pod;
/// let requested = setpoint::informer::Requested::default();
/// informers.noting(&requested).of::<Pod>();
/// assert_eq!(requested.all()[0].0.plural(), "pods");
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Requested(Arc<Mutex<BTreeSet<(Kind, Selection)>>>);

impl Requested {
    /// What was requested so far.
    pub fn all(&self) -> Vec<(Kind, Selection)> {
        self.0.lock().iter().cloned().collect()
    }
}

/// A handle to a shared informer. Cheap to clone.
///
/// ```no_run
/// # async fn example(informers: setpoint::Informers) -> Result<(), setpoint::object::DecodeError> {
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint::{Event, Key};
/// let pods = informers.of::<Pod>();
/// pods.add_index("app", Arc::new(|pod| pod.meta().label("app").map(String::from).into_iter().collect()));
/// pods.add_handler(|event: &Event| println!("{} changed", event.object().key()));
/// pods.synced().await;
/// let web = pods.lister::<Pod>().indexed("app", "web")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Informer {
    shared: Arc<Shared>,
}

struct Factory {
    source: Arc<dyn Source>,
    runtime: Runtime,
    informers: Mutex<BTreeMap<(Kind, Selection), Informer>>,
    settings: Mutex<Settings>,
    /// Informers have been made or removed since [`Informers::run`] last looked.
    changed: Notify,
}

/// What informers made from now on are made with.
struct Settings {
    resync: Option<Duration>,
    checked_every: Option<Duration>,
    list_within: Duration,
    transforms: BTreeMap<Kind, Transform>,
}

/// A list of a hundred thousand objects takes seconds; one that hangs on a dead connection takes for ever.
const LIST_WITHIN: Duration = Duration::from_secs(300);

impl Default for Settings {
    fn default() -> Self {
        let (resync, checked_every, transforms) = Default::default();
        Self { resync, checked_every, list_within: LIST_WITHIN, transforms }
    }
}

/// What the handles of an informer share with its task.
struct Shared {
    kind: Kind,
    selection: Selection,
    indexer: Arc<Indexer>,
    registrations: Registrations,
    progress: watch::Sender<Progress>,
    stats: Mutex<Stats>,
    resync: Option<Duration>,
    checked_every: Option<Duration>,
    list_within: Duration,
    transform: Option<Transform>,
    /// A task has this informer in hand.
    running: AtomicBool,
    /// How many wait for what the cache will show, and word that there is one more.
    awaited: AtomicUsize,
    awaits: Notify,
}

/// What an informer counts.
struct Stats {
    queued: usize,
    seconds: Histogram,
    undecodable: u64,
    inconsistencies: u64,
}

impl Stats {
    fn new() -> Self {
        Self { queued: 0, seconds: Histogram::new(QUEUE_SECONDS), undecodable: 0, inconsistencies: 0 }
    }
}

/// How far an informer is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The first list is in the cache, and handlers have been notified of it.
    listed: bool,
    /// Handlers that have not got the content of the cache yet.
    pending: usize,
    /// The newest version in the cache that handlers have been notified of.
    revision: u64,
}

/// What the cache of an informer holds.
///
/// ```
/// # fn example(informers: &setpoint::Informers) {
/// let bytes: usize = informers.sizes().iter().map(|size| size.bytes).sum();
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Of which kind.
    pub kind: Kind,
    /// How many objects.
    pub objects: usize,
    /// How large they are, encoded.
    pub bytes: usize,
}

impl Informers {
    /// Informers that read from `source`.
    pub fn new(source: Arc<dyn Source>, runtime: Runtime) -> Self {
        let (informers, settings, changed) = Default::default();
        let shared = Arc::new(Factory { source, runtime, informers, settings, changed });
        Self { shared, requested: None }
    }

    /// The same informers; what is requested through this handle is noted.
    pub fn noting(&self, requested: &Requested) -> Self {
        Self { shared: self.shared.clone(), requested: Some(requested.clone()) }
    }

    /// Informers made from now on notify their handlers of every object again, as an update to the same
    /// version, each `period`, stretched at random up to twice so that informers do not do it together.
    pub fn resync_every(&self, period: Duration) {
        self.shared.settings.lock().resync = Some(period);
    }

    /// Informers made from now on take a list that is not complete within this time for failed and ask for
    /// another (default 5 minutes).
    pub fn list_within(&self, limit: Duration) {
        self.shared.settings.lock().list_within = limit;
    }

    /// Informers made from now on compare their cache with a list each `period`, and where they differ say so
    /// in the log, count it as `informer_inconsistencies_total`, and list again.
    ///
    /// It costs the server a list a period and should never find anything: for tests and debug builds.
    pub fn check_consistency_every(&self, period: Duration) {
        self.shared.settings.lock().checked_every = Some(period);
    }

    /// Informers of a kind that are made from now on change each object so before they cache it.
    pub fn transform(&self, kind: &Kind, transform: Transform) {
        self.shared.settings.lock().transforms.insert(kind.clone(), transform);
    }

    /// Shows what its informers count in `metrics`.
    pub fn observe(&self, metrics: &Metrics) {
        let stats: Weak<Factory> = Arc::downgrade(&self.shared);
        metrics.add_informers(stats);
    }

    /// The informer of all objects of a view's kind.
    pub fn of<V: View>(&self) -> Informer {
        self.select(&Kind::of::<V>(), Selection::default())
    }

    /// The informer of a selection of a kind's objects.
    pub fn select(&self, kind: &Kind, selection: Selection) -> Informer {
        if let Some(Requested(requested)) = &self.requested {
            requested.lock().insert((kind.clone(), selection.clone()));
        }
        let mut informers = self.shared.informers.lock();
        let informer = informers.entry((kind.clone(), selection.clone())).or_insert_with(|| {
            self.shared.changed.notify_one();
            self.make(kind, selection)
        });
        informer.clone()
    }

    /// The informer of all objects of a kind for somebody who reads no more than their metadata: the full
    /// one where it costs nothing, because there is one already or because the source's objects are held
    /// by others anyway; else one of metadata alone.
    ///
    /// Ask late, when everybody else has asked: who asks for the full objects afterwards gets a second
    /// informer.
    pub fn metadata_of(&self, kind: &Kind) -> Informer {
        let known = self.shared.informers.lock().contains_key(&(kind.clone(), Selection::default()));
        let metadata_only = !known && !self.shared.source.shares_objects();
        self.select(kind, Selection { metadata_only, ..Selection::default() })
    }

    /// What the caches hold, by kind.
    pub fn sizes(&self) -> Vec<CacheSize> {
        let informers: Vec<Informer> = self.shared.informers.lock().values().cloned().collect();
        let size = |informer: &Informer| {
            let objects = informer.objects().list(None);
            let bytes = objects.iter().map(|object| object.raw().len()).sum();
            CacheSize { kind: informer.kind().clone(), objects: objects.len(), bytes }
        };
        informers.iter().map(size).collect()
    }

    /// Stops an informer that no handler listens to, and forgets it.
    pub fn remove_unheard(&self, informer: &Informer) {
        if informer.shared.registrations.is_empty() {
            self.remove(informer);
        }
    }

    /// Stops an informer and forgets it: its listers show what it last knew, and the next request for
    /// the same kind and selection makes a new one.
    pub fn remove(&self, informer: &Informer) {
        let of = (informer.shared.kind.clone(), informer.shared.selection.clone());
        let mut informers = self.shared.informers.lock();
        if informers.get(&of).is_some_and(|known| known.is(informer)) {
            informers.remove(&of);
            self.shared.changed.notify_one();
        }
    }

    /// Runs the informers there are and those made later, until `stop`. Dropping the future ends them too.
    pub async fn run(&self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut running: Vec<(Informer, AbortHandle)> = Vec::new();
        loop {
            self.stop_removed(&mut running);
            self.start_new(&mut tasks, &mut running);
            tokio::select! {
                biased;
                () = stop.cancelled() => return tasks.shutdown().await,
                () = self.shared.changed.notified() => {}
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
            }
        }
    }

    fn make(&self, kind: &Kind, selection: Selection) -> Informer {
        let settings = self.shared.settings.lock();
        Informer {
            shared: Arc::new(Shared {
                kind: kind.clone(),
                selection,
                indexer: Arc::default(),
                registrations: Registrations::default(),
                progress: watch::Sender::default(),
                stats: Mutex::new(Stats::new()),
                resync: settings.resync,
                checked_every: settings.checked_every,
                list_within: settings.list_within,
                transform: settings.transforms.get(kind).cloned(),
                running: AtomicBool::new(false),
                awaited: AtomicUsize::new(0),
                awaits: Notify::new(),
            }),
        }
    }

    fn stop_removed(&self, running: &mut Vec<(Informer, AbortHandle)>) {
        let wanted = self.shared.informers.lock();
        running.retain(|(informer, task)| {
            let keep = wanted.values().any(|known| known.is(informer));
            if !keep {
                task.abort();
            }
            keep
        });
    }

    fn start_new(&self, tasks: &mut JoinSet<()>, running: &mut Vec<(Informer, AbortHandle)>) {
        for informer in self.shared.informers.lock().values() {
            let Some(claim) = Claim::of(informer) else { continue };
            let pipeline =
                Pipeline::new(informer.shared.clone(), self.shared.source.clone(), &self.shared.runtime);
            let task = tasks.spawn(async move {
                let _claim = claim;
                pipeline.run().await;
            });
            running.push((informer.clone(), task));
        }
    }
}

impl Informer {
    /// The kind it informs of.
    pub fn kind(&self) -> &Kind {
        &self.shared.kind
    }

    /// Which objects of the kind it informs of.
    pub fn selection(&self) -> &Selection {
        &self.shared.selection
    }

    /// Adds a handler, before or after the start: it gets everything in the cache first.
    pub fn add_handler(&self, handler: impl Handler) -> Registration {
        Registration::new(&self.shared, handler)
    }

    /// Adds an index under a name; the same name twice is the same index.
    pub fn add_index(&self, name: &'static str, index: IndexFn) {
        self.shared.indexer.add_index(name, index);
    }

    /// Reads the cache through a view.
    pub fn lister<V: View>(&self) -> Lister<V> {
        Lister::new(self.shared.indexer.clone())
    }

    /// Reads the cache without a view: metadata and bytes.
    pub fn objects(&self) -> &Arc<Indexer> {
        &self.shared.indexer
    }

    /// Whether the first list is in the cache and every handler has been notified of it.
    pub fn has_synced(&self) -> bool {
        self.shared.progress.borrow().synced()
    }

    /// Waits until [`has_synced`](Self::has_synced).
    pub async fn synced(&self) {
        self.reaches(Progress::synced).await;
    }

    /// The newest version that the cache shows and handlers have been notified of; 0 before the first list.
    pub fn revision(&self) -> u64 {
        self.shared.progress.borrow().revision
    }

    /// Waits until the cache shows what a write made: `version` is the resource version in the reply.
    ///
    /// A write to an object outside the informer's selection is seen with the next bookmark, which may
    /// take a minute: wait with a timeout. A version that is no number is not waited for.
    pub async fn seen(&self, version: &str) {
        let revision = version.parse().unwrap_or(0);
        self.reaches(|progress| progress.revision >= revision).await;
    }

    /// Waits until the cache shows what `shown` looks for, and handlers have been notified of it.
    pub(crate) async fn shows(&self, shown: impl Fn(&Self) -> bool) {
        let _awaited = Awaited::announce(&self.shared);
        let mut progress = self.shared.progress.subscribe();
        while !shown(self) {
            progress.changed().await.expect("the sender is in `shared`, which outlives this borrow");
        }
    }

    async fn reaches(&self, enough: impl Fn(&Progress) -> bool) {
        let _awaited = Awaited::announce(&self.shared);
        let waited = self.shared.progress.subscribe().wait_for(enough).await.map(|_| ());
        waited.expect("the sender is in `shared`, which outlives this borrow");
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl InformerStats for Factory {
    fn metrics(&self) -> Vec<InformerMetrics> {
        let informers: Vec<Informer> = self.informers.lock().values().cloned().collect();
        informers.iter().map(|informer| informer.shared.metrics()).collect()
    }
}

impl Shared {
    fn metrics(&self) -> InformerMetrics {
        let stats = self.stats.lock();
        InformerMetrics {
            name: self.selection.to_string(),
            group: self.kind.group().into(),
            version: self.kind.version().into(),
            resource: self.kind.plural().into(),
            queued: stats.queued,
            seconds: stats.seconds.clone(),
            revision: self.progress.borrow().revision,
            undecodable: stats.undecodable,
            inconsistencies: stats.inconsistencies,
        }
    }
}

impl Progress {
    fn synced(&self) -> bool {
        self.listed && self.pending == 0
    }
}

/// Somebody waits for what the cache will show: the informer goes on even if a handler has no room.
struct Awaited<'a>(&'a Shared);

impl<'a> Awaited<'a> {
    fn announce(shared: &'a Shared) -> Self {
        shared.awaited.fetch_add(1, Ordering::AcqRel);
        shared.awaits.notify_one();
        Self(shared)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Waits until every handler has room, or somebody waits for this informer.
    async fn room(&self) {
        for handler in &*self.registrations.active() {
            let Some(room) = handler.room() else { continue };
            tokio::select! {
                biased;
                () = room => {}
                () = self.somebody_waits() => return,
            }
        }
    }

    async fn somebody_waits(&self) {
        while self.awaited.load(Ordering::Acquire) == 0 {
            self.awaits.notified().await;
        }
    }
}

/// The right to run an informer, given back when dropped.
struct Claim(Arc<Shared>);

impl Claim {
    fn of(informer: &Informer) -> Option<Self> {
        let taken = informer.shared.running.swap(true, Ordering::AcqRel);
        (!taken).then(|| Self(informer.shared.clone()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}
