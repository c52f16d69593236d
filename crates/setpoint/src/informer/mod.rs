//! Stage 5: informers, one per kind and selection, shared by all controllers.
//!
//! Invariants:
//! - One task fills the cache and notifies the handlers, in order for each object. When a handler is notified of a
//!   state, the cache shows that state or a newer one.
//! - A handler added at any time first gets everything in the cache, then every change.
//! - An update never changes an object's uid. An object that was replaced by another of the same name is reported as
//!   deleted, then added.
//! - All tasks belong to the future of [`Informers::run`] and end when it is dropped.

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

/// A function that changes an object before it is cached, to drop fields that are not needed. Must not change key, uid
/// or resource version.
pub type Transform = Arc<dyn Fn(Object) -> Object + Send + Sync>;

/// All informers of a process: one per kind and selection, created on first use. Cheap to clone.
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
    requested: Option<RequestedKinds>,
}

/// The kinds and selections requested through a handle of [`Informers`], which show what a component reads. Cheap to
/// clone.
///
/// ```
/// # fn example(informers: &setpoint::Informers) {
/// use k8s_openapi::api::core::v1::Pod;
/// let requested = setpoint::informer::RequestedKinds::default();
/// informers.tracking(&requested).of::<Pod>();
/// assert_eq!(requested.all()[0].0.plural(), "pods");
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestedKinds(Arc<Mutex<BTreeSet<(Kind, Selection)>>>);

impl RequestedKinds {
    /// Returns the requests so far.
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
/// pods.wait_for_sync().await;
/// let web = pods.lister::<Pod>().indexed("app", "web")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Informer {
    shared: Arc<Inner>,
}

struct Factory {
    source: Arc<dyn Source>,
    runtime: Runtime,
    informers: Mutex<BTreeMap<(Kind, Selection), Informer>>,
    settings: Mutex<Settings>,
    /// Informers have been created or removed since [`Informers::run`] last checked.
    changed: Notify,
}

/// The settings of informers created from now on.
struct Settings {
    resync: Option<Duration>,
    checked_every: Option<Duration>,
    list_within: Duration,
    transforms: BTreeMap<Kind, Transform>,
}

/// A list of a hundred thousand objects takes seconds. A list that hangs on a dead connection takes forever.
const LIST_WITHIN: Duration = Duration::from_secs(300);

impl Default for Settings {
    fn default() -> Self {
        let (resync, checked_every, transforms) = Default::default();
        Self { resync, checked_every, list_within: LIST_WITHIN, transforms }
    }
}

/// State shared by an informer's handles and its task.
struct Inner {
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
    /// A task runs this informer.
    running: AtomicBool,
    /// The number of callers that wait for the cache to catch up, and a notification when one is added.
    awaited: AtomicUsize,
    awaits: Notify,
}

/// The counters of an informer.
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

/// The progress of an informer.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The initial list is in the cache, and handlers have been notified of it.
    listed: bool,
    /// Handlers that have not received the contents of the cache yet.
    pending: usize,
    /// The newest version in the cache that handlers have been notified of.
    revision: u64,
}

/// The size of an informer's cache.
///
/// ```
/// # fn example(informers: &setpoint::Informers) {
/// let bytes: usize = informers.sizes().iter().map(|size| size.bytes).sum();
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// The kind.
    pub kind: Kind,
    /// The number of objects.
    pub objects: usize,
    /// The size of the encoded objects, in bytes.
    pub bytes: usize,
}

impl Informers {
    /// Creates informers that read from `source`.
    pub fn new(source: Arc<dyn Source>, runtime: Runtime) -> Self {
        let (informers, settings, changed) = Default::default();
        let shared = Arc::new(Factory { source, runtime, informers, settings, changed });
        Self { shared, requested: None }
    }

    /// Returns a separate, empty set of informers with the same source. The caller has to [`run`](Self::run) it, and
    /// may remove its informers without affecting others.
    pub fn separate(&self) -> Self {
        Self::new(self.shared.source.clone(), self.shared.runtime.clone())
    }

    /// Returns a handle to the same informers that records requests in `requested`.
    pub fn tracking(&self, requested: &RequestedKinds) -> Self {
        Self { shared: self.shared.clone(), requested: Some(requested.clone()) }
    }

    /// Makes informers created from now on notify their handlers of every object each `period`, as an update to the
    /// same version. The period is randomly extended, up to double, so that informers do not resync at the same time.
    pub fn resync_every(&self, period: Duration) {
        self.shared.settings.lock().resync = Some(period);
    }

    /// Sets the timeout for lists of informers created from now on (default 5 minutes). A list that times out is
    /// retried.
    pub fn list_within(&self, limit: Duration) {
        self.shared.settings.lock().list_within = limit;
    }

    /// Makes informers created from now on compare their cache with a list each `period`. If they differ, the informer
    /// logs it, counts it in `informer_inconsistencies_total`, and lists again.
    ///
    /// This costs the server a list per period and should never find anything. It is meant for tests and debug builds.
    pub fn check_consistency_every(&self, period: Duration) {
        self.shared.settings.lock().checked_every = Some(period);
    }

    /// Sets the transform for informers of this kind created from now on.
    pub fn transform(&self, kind: &Kind, transform: Transform) {
        self.shared.settings.lock().transforms.insert(kind.clone(), transform);
    }

    /// Exposes the informers' counters in `metrics`.
    pub fn observe(&self, metrics: &Metrics) {
        let stats: Weak<Factory> = Arc::downgrade(&self.shared);
        metrics.add_informers(stats);
    }

    /// Returns the informer for all objects of a view's kind.
    pub fn of<V: View>(&self) -> Informer {
        self.select(&Kind::of::<V>(), Selection::default())
    }

    /// Returns the informer for a selection of a kind's objects.
    pub fn select(&self, kind: &Kind, selection: Selection) -> Informer {
        if let Some(RequestedKinds(requested)) = &self.requested {
            requested.lock().insert((kind.clone(), selection.clone()));
        }
        let mut informers = self.shared.informers.lock();
        let informer = informers.entry((kind.clone(), selection.clone())).or_insert_with(|| {
            self.shared.changed.notify_one();
            self.make(kind, selection)
        });
        informer.clone()
    }

    /// Returns an informer for callers that only read metadata. Returns the full informer if that costs nothing extra:
    /// it exists already, or the source shares its objects. Otherwise returns an informer that caches only metadata.
    ///
    /// Call this after all full informers have been requested. A later request for the full objects creates a second
    /// informer.
    pub fn metadata_of(&self, kind: &Kind) -> Informer {
        let known = self.shared.informers.lock().contains_key(&(kind.clone(), Selection::default()));
        let metadata_only = !known && !self.shared.source.shares_objects();
        self.select(kind, Selection { metadata_only, ..Selection::default() })
    }

    /// Returns the sizes of the caches.
    pub fn sizes(&self) -> Vec<CacheSize> {
        let informers: Vec<Informer> = self.shared.informers.lock().values().cloned().collect();
        let size = |informer: &Informer| {
            let objects = informer.objects().list(None);
            let bytes = objects.iter().map(|object| object.raw().len()).sum();
            CacheSize { kind: informer.kind().clone(), objects: objects.len(), bytes }
        };
        informers.iter().map(size).collect()
    }

    /// Stops and removes an informer if it has no handlers.
    pub fn remove_if_unused(&self, informer: &Informer) {
        if informer.shared.registrations.is_empty() {
            self.remove(informer);
        }
    }

    /// Stops and removes an informer. Its listers keep their last state, and the next request for the same kind and
    /// selection creates a new one.
    pub fn remove(&self, informer: &Informer) {
        let of = (informer.shared.kind.clone(), informer.shared.selection.clone());
        let mut informers = self.shared.informers.lock();
        if informers.get(&of).is_some_and(|known| known.is(informer)) {
            informers.remove(&of);
            self.shared.changed.notify_one();
        }
    }

    /// Runs all informers, including those created later, until `stop` is cancelled. Dropping the future ends them too.
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
            shared: Arc::new(Inner {
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
            let Some(claim) = RunGuard::of(informer) else { continue };
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
    /// Returns the kind.
    pub fn kind(&self) -> &Kind {
        &self.shared.kind
    }

    /// Returns the selection.
    pub fn selection(&self) -> &Selection {
        &self.shared.selection
    }

    /// Adds a handler, before or after the start. It first gets everything in the cache.
    pub fn add_handler(&self, handler: impl Handler) -> Registration {
        Registration::new(&self.shared, handler)
    }

    /// Adds an index. Does nothing if there is an index with this name.
    pub fn add_index(&self, name: &'static str, index: IndexFn) {
        self.shared.indexer.add_index(name, index);
    }

    /// Returns a lister that reads the cache through a view.
    pub fn lister<V: View>(&self) -> Lister<V> {
        Lister::new(self.shared.indexer.clone())
    }

    /// Returns the underlying indexer: metadata and bytes, without a view.
    pub fn objects(&self) -> &Arc<Indexer> {
        &self.shared.indexer
    }

    /// Returns whether the initial list is in the cache and every handler has been notified of it.
    pub fn has_synced(&self) -> bool {
        self.shared.progress.borrow().synced()
    }

    /// Waits until [`has_synced`](Self::has_synced).
    pub async fn wait_for_sync(&self) {
        self.reaches(Progress::synced).await;
    }

    /// Returns the newest version that the cache shows and handlers have been notified of, or 0 before the initial
    /// list.
    pub fn revision(&self) -> u64 {
        self.shared.progress.borrow().revision
    }

    /// Waits until the cache shows a write. `version` is the resource version in the response to it.
    ///
    /// A write to an object outside the informer's selection becomes visible only with the next bookmark, which may
    /// take a minute: use a timeout. Returns immediately if the version is not a number.
    pub async fn wait_for_version(&self, version: &str) {
        let revision = version.parse().unwrap_or(0);
        self.reaches(|progress| progress.revision >= revision).await;
    }

    /// Waits until `shown` returns true for the cache, and handlers have been notified.
    pub(crate) async fn shows(&self, shown: impl Fn(&Self) -> bool) {
        let _awaited = WaitGuard::announce(&self.shared);
        let mut progress = self.shared.progress.subscribe();
        while !shown(self) {
            progress.changed().await.expect("the sender is in `shared`, which outlives this borrow");
        }
    }

    async fn reaches(&self, enough: impl Fn(&Progress) -> bool) {
        let _awaited = WaitGuard::announce(&self.shared);
        let waited = self.shared.progress.subscribe().wait_for(enough).await.map(|_| ());
        waited.expect("the sender is in `shared`, which outlives this borrow");
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl InformerStats for Factory {
    fn metrics(&self) -> Vec<InformerMetrics> {
        let informers: Vec<Informer> = self.informers.lock().values().cloned().collect();
        informers.iter().map(|informer| informer.shared.metrics()).collect()
    }
}

impl Inner {
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

/// A marker that a caller waits for the cache to catch up. The informer then continues even if a handler has no room.
struct WaitGuard<'a>(&'a Inner);

impl<'a> WaitGuard<'a> {
    fn announce(shared: &'a Inner) -> Self {
        shared.awaited.fetch_add(1, Ordering::AcqRel);
        shared.awaits.notify_one();
        Self(shared)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inner {
    /// Waits until every handler has room, or a caller is waiting for this informer.
    async fn room(&self) {
        for handler in &*self.registrations.active() {
            let Some(room) = handler.room() else { continue };
            tokio::select! {
                biased;
                () = room => {}
                () = self.has_waiters() => return,
            }
        }
    }

    async fn has_waiters(&self) {
        while self.awaited.load(Ordering::Acquire) == 0 {
            self.awaits.notified().await;
        }
    }
}

/// The right to run an informer, released on drop.
struct RunGuard(Arc<Inner>);

impl RunGuard {
    fn of(informer: &Informer) -> Option<Self> {
        let taken = informer.shared.running.swap(true, Ordering::AcqRel);
        (!taken).then(|| Self(informer.shared.clone()))
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}
