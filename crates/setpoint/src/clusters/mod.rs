//! Many clusters: one controller reconciles the objects of all clusters in a [`Fleet`], which come and go.
//!
//! ```text
//!  kubeconfig Secrets, or any other source
//!         │ join, leave
//!         ▼
//!       Fleet ──► a cluster: a client, informers, whether it is reachable          member.rs
//!         │            │ events
//!         │            ▼
//!         │         a gate: holds keys until the caches have synced, and while the cluster is unreachable   gate.rs
//!         │            │
//!         └──────► one queue of (cluster, key) ──► the workers of one controller   across.rs
//! ```
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use setpoint::clusters::{Fleet, KubeconfigSecrets};
//! use setpoint::prelude::*;
//!
//! fn greeter(context: &Context) -> Controller {
//!     Controller::for_::<Namespace>(context, "greeter").owns::<ConfigMap>().run(greet)
//! }
//!
//! async fn greet(namespace: Cached<Namespace>, context: Context) -> Result<(), ReconcileError> {
//!     println!("hello, {} in {}", namespace.name(), context.cluster().unwrap_or("this cluster"));
//!     Ok(())
//! }
//!
//! # fn example(manager: Manager) -> Manager {
//! let fleet = Fleet::new(manager.context());
//! manager
//!     .with(|context| KubeconfigSecrets::in_namespace("clusters").join(context, &fleet))
//!     .with(|context| fleet.controller(context, "greeter", greeter).workers(8))
//!     .with(|_| fleet.clone())
//! # }
//! ```
//!
//! Invariants:
//! - A key is reconciled only while its cluster is in the fleet, reachable, and shown by synced caches. A dead cluster
//!   occupies no worker for longer than one timeout.
//! - When a cluster leaves, its watches are closed and its reconciles are dropped, as in a crash.
//! - Writes are fenced like all others of the manager: a replica that has lost its lease writes to no cluster.

mod across;
mod gate;
mod kubeconfigs;
mod member;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::source::Source;
use crate::{Client, Context, Controller, Informers, Key, Runnable};
use across::Follower;
use member::Member;

pub(crate) use gate::Gate;
pub use kubeconfigs::{Connect, KubeconfigSecrets};

/// The most clusters in a fleet. Each has up to [`CONNECTIONS`] requests in flight, so there are at most 4,096, and one
/// watch for each kind.
const MAX_CLUSTERS: usize = 256;
/// Concurrent requests to one cluster.
const CONNECTIONS: usize = 16;
/// How long a request to a cluster may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// An object of a cluster: what the workers of a [`Fleet::controller`] take from their queue.
///
/// ```
/// use setpoint::{Key, clusters::ClusterKey};
/// let key = ClusterKey { cluster: "east".into(), key: Key::namespaced("shop", "web") };
/// assert_eq!(key.to_string(), "east shop/web");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// The object.
    pub key: Key,
}

impl ClusterKey {
    /// The key that decides which replica of a sharded manager reconciles this one.
    fn place(&self) -> Key {
        Key::in_namespace(self.key.namespace(), format!("{}/{}", self.cluster, self.key.name()))
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cluster, self.key)
    }
}

/// Access to a cluster.
pub struct Connection {
    /// Reads and writes objects.
    pub client: Client,
    /// Lists and watches objects.
    pub source: Arc<dyn Source>,
}

/// A fleet has as many clusters as it may have.
///
/// ```
/// use setpoint::clusters::TooManyClusters;
/// assert_eq!(TooManyClusters.to_string(), "a fleet has at most 256 clusters");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fleet has at most {MAX_CLUSTERS} clusters")]
pub struct TooManyClusters;

/// Clusters that come and go, and the controllers that reconcile their objects. Cheap to clone. See the [module](self)
/// for an example.
///
/// It is also the runnable that runs the informers of the clusters, and must be added to the manager.
#[derive(Clone)]
pub struct Fleet(Arc<Shared>);

struct Shared {
    context: Context,
    members: Mutex<BTreeMap<Arc<str>, Arc<Member>>>,
    /// The controllers. They belong to the manager.
    followers: Mutex<Vec<Weak<Follower>>>,
    /// Held while clusters come and go, so that all controllers see that in the same order.
    changing: Mutex<()>,
    changed: Notify,
}

impl Fleet {
    /// Creates a fleet without clusters.
    pub fn new(context: &Context) -> Self {
        let (members, followers, changing, changed) = Default::default();
        let fleet =
            Self(Arc::new(Shared { context: context.clone(), members, followers, changing, changed }));
        fleet.expose();
        fleet
    }

    /// Adds a cluster, or replaces the one of this name.
    ///
    /// Its client gets the manager's rate limit and fence, a limit of 16 concurrent requests and a timeout of 15 seconds.
    pub fn join(&self, name: &str, connection: Connection) -> Result<(), TooManyClusters> {
        let _changing = self.0.changing.lock();
        let name: Arc<str> = name.into();
        let is_full = |members: &BTreeMap<Arc<str>, Arc<Member>>| {
            members.len() >= MAX_CLUSTERS && !members.contains_key(&name)
        };
        if is_full(&self.0.members.lock()) {
            return Err(TooManyClusters);
        }
        self.remove(&name);
        let member = Arc::new(self.member(&name, connection));
        self.0.members.lock().insert(name, member.clone());
        self.followers().iter().for_each(|follower| follower.joined(&member));
        self.0.changed.notify_one();
        Ok(())
    }

    /// Removes a cluster. Its watches are closed, and its reconciles dropped.
    pub fn leave(&self, name: &str) {
        let _changing = self.0.changing.lock();
        self.remove(name);
        self.0.changed.notify_one();
    }

    fn remove(&self, name: &str) {
        let removed = self.0.members.lock().remove(name);
        if let Some(member) = removed {
            member.stop();
            self.followers().iter().for_each(|follower| follower.left(name));
        }
    }

    fn member(&self, name: &Arc<str>, connection: Connection) -> Member {
        let Connection { client, source } = connection;
        let context = &self.0.context;
        let (clock, config) = (&context.runtime.clock, &context.config);
        let client = client
            .with_rate_limit(clock, config.client_qps, config.client_burst)
            .with_connections(CONNECTIONS)
            .with_timeout(TIMEOUT)
            .untracked();
        Member::new(context.of_cluster(name, client, Informers::new(source, context.runtime.clone())), name)
    }

    fn followers(&self) -> Vec<Arc<Follower>> {
        let mut followers = self.0.followers.lock();
        followers.retain(|follower| follower.strong_count() > 0);
        followers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the context of a cluster: its client, its caches. For a controller in one cluster that reads or writes
    /// objects in others.
    ///
    /// ```
    /// # async fn example(fleet: setpoint::clusters::Fleet) -> Result<(), setpoint::ReconcileError> {
    /// use k8s_openapi::api::core::v1::Node;
    /// if let Some(east) = fleet.get("east") {
    ///     println!("{} nodes", east.cached_list::<Node>(None).await?.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn get(&self, name: &str) -> Option<Context> {
        self.0.members.lock().get(name).map(|member| member.context().clone())
    }

    /// Returns the names of the clusters, in order.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.0.members.lock().keys().cloned().collect()
    }

    /// Returns whether a cluster is in the fleet and can be reached, as far as the last request to it tells.
    pub fn is_reachable(&self, name: &str) -> bool {
        self.0.members.lock().get(name).is_some_and(|member| member.is_reachable())
    }

    /// Builds a controller for the objects of all clusters. `build` is called for each cluster, with its context, and
    /// returns what it would return for a single cluster: what [`Controller::for_`] builds. Of that, the kinds and the
    /// reconciler are used. The workers and their settings are those of the controller that this function returns.
    ///
    /// [`Context::cluster`] tells a reconciler which cluster an object is in. `build` must not have clusters join or leave.
    pub fn controller(
        &self,
        context: &Context,
        name: &'static str,
        build: impl Fn(&Context) -> Controller + Send + Sync + 'static,
    ) -> Controller<ClusterKey> {
        let _changing = self.0.changing.lock();
        let (controller, follower) = across::controller(context, name, build);
        self.0.members.lock().values().for_each(|member| follower.joined(member));
        self.0.followers.lock().push(Arc::downgrade(&follower));
        controller
    }

    fn all(&self) -> Vec<Arc<Member>> {
        self.0.members.lock().values().cloned().collect()
    }

    fn expose(&self) {
        let fleet = Arc::downgrade(&self.0);
        let values = move || {
            let members = fleet.upgrade().map(|shared| Self(shared).all()).unwrap_or_default();
            let value = |member: Arc<Member>| {
                (vec![("cluster", member.name().to_string())], f64::from(u8::from(member.is_reachable())))
            };
            members.into_iter().map(value).collect()
        };
        let help = "Whether a cluster of the fleet can be reached.";
        self.0.context.metrics.collect("setpoint_cluster_reachable", help, values);
    }

    /// Starts what has joined, and ends what has left.
    fn start_and_stop(&self, tasks: &mut JoinSet<()>, running: &mut Vec<(Arc<Member>, AbortHandle)>) {
        let wanted = self.all();
        running.retain(|(member, task)| {
            let keep = wanted.iter().any(|other| Arc::ptr_eq(other, member));
            if !keep {
                task.abort();
            }
            keep
        });
        for member in wanted {
            if !running.iter().any(|(known, _)| Arc::ptr_eq(known, &member)) {
                let task = tasks.spawn(member.clone().run());
                running.push((member, task));
            }
        }
    }
}

impl Runnable for Fleet {
    fn name(&self) -> &str {
        "clusters"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            let (mut tasks, mut running) = (JoinSet::new(), Vec::new());
            loop {
                self.start_and_stop(&mut tasks, &mut running);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return tasks.shutdown().await,
                    () = self.0.changed.notified() => {}
                    Some(ended) = tasks.join_next() => {
                        if let Err(error) = ended && error.is_panic() {
                            std::panic::resume_unwind(error.into_panic());
                        }
                    }
                }
            }
        }
        .boxed()
    }
}
