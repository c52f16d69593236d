//! Snapshots: the objects of a prepared cluster, shared as the initial state of many others.
//!
//! A search runs thousands of clusters with the same initial state. Creating the objects of a new cluster takes longer
//! than many of these runs, so it is done once per process.
//!
//! - A snapshot does not depend on which test prepared it: the seed and the time are constants.
//! - A cluster never sees the writes of others: the store's maps are persistent.

use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::{Clock, Rng, Runtime};
use setpoint_apiserver::{Config, Features};
use setpoint_cluster::{Cluster, Components};
use setpoint_store::MemoryStore;

use crate::world::{EPOCH, World};

/// The seed for the objects of snapshots.
const SEED: u64 = 0;

/// The objects of new clusters. Each takes about a megabyte, and the tests of a process use a handful of sets of feature
/// gates.
static NEW: Mutex<Vec<(Kinds, Snapshot)>> = Mutex::new(Vec::new());

/// The initial objects of clusters. Cheap to clone.
///
/// ```
/// use setpoint::Kind;
/// use setpoint_cluster::Components;
/// use setpoint_sim::{Snapshot, World};
/// let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
/// let parts = Components::default();
/// let prepared = Snapshot::of(&parts, async |world| {
///     world.create(&namespaces, None, serde_json::json!({"metadata": {"name": "shop"}})).await;
/// });
/// for seed in 1..10 {
///     World::simulate_from(&prepared, seed, parts.clone(), Vec::new(), async |world| {
///         assert!(world.list(&namespaces, None).await.iter().any(|one| one["metadata"]["name"] == "shop"));
///     });
/// }
/// ```
#[derive(Clone)]
pub struct Snapshot(Arc<MemoryStore>);

/// The options that determine the objects of a new cluster.
#[derive(Clone, PartialEq, Eq)]
struct Kinds {
    features: Features,
    serves_metrics: bool,
}

impl Snapshot {
    /// Prepares a cluster without controllers, at the time at which every simulation starts. Must not be called in an
    /// async context: it runs its own runtime.
    pub fn of(parts: &Components, prepare: impl AsyncFnOnce(&World)) -> Self {
        World::without_manager(SEED, parts.clone(), async |world| {
            prepare(world).await;
            Self(world.store().clone())
        })
    }

    /// Returns the snapshot of a new cluster.
    pub(crate) async fn of_new(parts: &Components) -> Self {
        let kinds = Kinds::of(parts);
        let find =
            || NEW.lock().iter().find(|(known, _)| *known == kinds).map(|(_, snapshot)| snapshot.clone());
        if let Some(known) = find() {
            return known;
        }
        let clock = Clock::simulated(EPOCH.parse().expect("a constant time"));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(SEED) };
        let config = config(store.clone(), &runtime, parts);
        Cluster::with_config(config, runtime).await.expect("an empty store can be started on");
        let new = Self(store);
        NEW.lock().push((kinds, new.clone()));
        new
    }

    /// Returns a store with these objects.
    pub(crate) fn fork(&self, clock: &Clock) -> Arc<MemoryStore> {
        Arc::new(self.0.fork(clock.clone()))
    }
}

impl Kinds {
    fn of(parts: &Components) -> Self {
        let features = Cluster::features(&parts.controller_options.gates);
        Self { features, serves_metrics: parts.nodes > 0 }
    }
}

/// Returns the configuration of an API server with these parts.
pub(crate) fn config(store: Arc<MemoryStore>, runtime: &Runtime, parts: &Components) -> Config {
    let config = Config::new(store, runtime.clock.clone(), runtime.rng.fork());
    let mut config = Cluster::with_gates(config, &parts.controller_options.gates).with_built_in_roles();
    if parts.nodes > 0 {
        Cluster::serve_metrics(&mut config);
    }
    config
}
