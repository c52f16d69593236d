//! The clusters in use, shared by all controllers of a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::clusters::Connection;
use setpoint::source::Selection;
use setpoint::{
    Client, ClientError, Context, Event, Informer, Informers, Key, Lister, Object, Queue, Runnable, View,
};
use tokio::sync::Notify;

use super::credential::{ClusterSecret, Credential};
use super::inventory::Inventory;
use super::probe;
use crate::apply::cluster::ClusterError;
use crate::names::{CLUSTER_CREDENTIAL_TYPE, SYSTEM_NAMESPACE};

/// The maximum number of clusters in use. Each has up to [`CONNECTIONS`] requests in flight, so there are at most
/// 4,096, and one watch for each of up to [`MAX_WATCHED`] kinds.
const MAX_CLUSTERS: usize = 256;
/// Concurrent requests to one cluster: two for each of eight workers.
const CONNECTIONS: usize = 16;
/// How long a request may take. A cluster that takes longer is unreachable.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum number of watched kinds per cluster. Objects of further kinds are read when the application is
/// reconciled.
pub(crate) const MAX_WATCHED: usize = 128;

/// The delay before a cluster is probed after a failed request, and how often it doubles: 1, 2, 4, 8 s. Clusters are
/// probed every ten seconds anyway.
const FIRST_PROBE: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 3;

/// Connects to other clusters. The program that runs the controllers decides how, and which addresses are allowed.
pub trait Connect: Send + Sync {
    /// Prepares access to a cluster, without sending anything. The error says what is wrong with the credential.
    fn connect(&self, credential: &Credential) -> Result<Connection, String>;
}

/// The clusters in use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Members(Arc<Shared>);

pub(super) struct Shared {
    context: Context,
    connect: Option<Arc<dyn Connect>>,
    secrets: Informer,
    lister: Lister<ClusterSecret>,
    in_use: Mutex<BTreeMap<String, Arc<Member>>>,
    /// The members to probe.
    pub(super) probes: Queue<Key>,
    /// Members have been added or removed since their informers were last started and stopped.
    pub(super) changed: Notify,
    /// Callbacks for changed clusters: the credential, or the reachability.
    followers: Mutex<Vec<Follower>>,
}

/// Called with the name of a cluster that has changed.
pub(crate) type Follower = Box<dyn Fn(&str) + Send + Sync>;

/// A cluster in use.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) informers: Informers,
    pub(crate) reach: Reach,
    credential: Credential,
}

/// The reachability of a cluster.
pub(crate) struct Reach {
    /// Why it is unreachable. The first reason is kept until it is reachable again, so that statuses do not change with
    /// every attempt.
    problem: Mutex<Option<String>>,
    /// Failed requests since the cluster was last stably reachable.
    failures: AtomicU32,
    probes: Queue<Key>,
    name: String,
}

impl Members {
    /// Returns the members, and the controller that maintains them.
    pub(crate) fn new(
        context: &Context,
        connect: Option<Arc<dyn Connect>>,
    ) -> (Self, Vec<Box<dyn Runnable>>) {
        let secrets = context.informers.select(&ClusterSecret::kind(), credentials());
        let members = Self(Arc::new(Shared {
            context: context.clone(),
            connect,
            lister: secrets.lister(),
            secrets,
            in_use: Mutex::default(),
            probes: context.queue("cluster"),
            changed: Notify::new(),
            followers: Mutex::default(),
        }));
        // A weak reference: the members own the informer.
        let followed = Arc::downgrade(&members.0);
        members.0.secrets.add_handler(move |event: &Event| {
            if let Some(shared) = followed.upgrade() {
                Self(shared).secret_changed(event.object().key().name());
            }
        });
        members.expose();
        let parts = probe::runnables(context, &members);
        (members, parts)
    }

    /// The cache that must have synced before clusters are looked up.
    pub(crate) fn secrets(&self) -> &Informer {
        &self.0.secrets
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Calls `follower` with the name of each cluster that has changed.
    pub(crate) fn follow(&self, follower: Follower) {
        self.0.followers.lock().push(follower);
    }

    pub(super) fn tell(&self, name: &str) {
        self.0.followers.lock().iter().for_each(|follower| follower(name));
    }

    /// Returns the registered clusters, read from the API server and not from a cache, because a missing one fails a
    /// step.
    pub(crate) async fn inventory(&self) -> Result<Inventory, ClusterError> {
        let selection = Selection { metadata_only: true, ..credentials() };
        let listed = self.0.context.client.list(&ClusterSecret::kind(), &selection).await;
        let listed = listed.map_err(|error| ClusterError::new("list the credentials of clusters", error))?;
        let secrets: Result<Vec<ClusterSecret>, _> = listed.objects.iter().map(Object::decode).collect();
        let secrets = secrets.map_err(|error| ClusterError::Refused(format!("decode a Secret: {error}")))?;
        Ok(Inventory::of(secrets.iter().map(|secret| &secret.metadata)))
    }

    /// Returns a registered cluster, and connects to it if it is not in use.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Member>, ClusterError> {
        let credential = self.credential(name)?;
        let mut in_use = self.0.in_use.lock();
        if let Some(known) = in_use.get(name).filter(|known| known.credential == credential) {
            return Ok(known.clone());
        }
        if in_use.len() >= MAX_CLUSTERS && !in_use.contains_key(name) {
            let why = format!("{MAX_CLUSTERS} other clusters are in use, which is the limit");
            return Err(ClusterError::unreachable(name, why));
        }
        let member = Arc::new(self.connect(credential)?);
        in_use.insert(name.to_owned(), member.clone());
        drop(in_use);
        self.0.changed.notify_one();
        self.0.probes.add(Key::cluster(name));
        Ok(member)
    }

    fn credential(&self, name: &str) -> Result<Credential, ClusterError> {
        let secret = self.0.lister.get(&Key::namespaced(SYSTEM_NAMESPACE, name));
        let secret =
            secret.map_err(|error| ClusterError::unreachable(name, format!("its Secret: {error}")))?;
        let secret = secret.ok_or_else(|| ClusterError::NoCluster { cluster: name.to_owned() })?;
        secret.credential().map_err(|why| ClusterError::unreachable(name, format!("its Secret: {why}")))
    }

    fn connect(&self, credential: Credential) -> Result<Member, ClusterError> {
        let (name, context) = (credential.cluster.clone(), &self.0.context);
        let failed = |why: String| ClusterError::unreachable(&name, why);
        let connect = self.0.connect.as_ref();
        let connect =
            connect.ok_or_else(|| failed("this program does not connect to other clusters".into()))?;
        let Connection { client, source } = connect.connect(&credential).map_err(failed)?;
        let (clock, config) = (&context.runtime.clock, &context.config);
        let client = client
            .with_rate_limit(clock, config.client_qps, config.client_burst)
            .with_connections(CONNECTIONS)
            .with_timeout(TIMEOUT)
            .untracked();
        Ok(Member {
            client: context.acting_as(client).client,
            informers: Informers::new(source, context.runtime.clone()),
            reach: Reach::new(&self.0.probes, &name),
            name,
            credential,
        })
    }

    pub(super) fn in_use(&self) -> Vec<Arc<Member>> {
        self.0.in_use.lock().values().cloned().collect()
    }

    pub(super) fn one_in_use(&self, name: &str) -> Option<Arc<Member>> {
        self.0.in_use.lock().get(name).cloned()
    }

    /// Drops a member whose Secret has changed or is gone. The next use reconnects.
    fn secret_changed(&self, name: &str) {
        let credential = self.credential(name).ok();
        let mut in_use = self.0.in_use.lock();
        if in_use.get(name).is_some_and(|known| Some(&known.credential) != credential.as_ref()) {
            in_use.remove(name);
            self.0.changed.notify_one();
        }
        drop(in_use);
        self.tell(name);
    }

    fn expose(&self) {
        let members = Arc::downgrade(&self.0);
        let values = move || {
            let members = members.upgrade().map(Members);
            let all = members.iter().flat_map(Members::in_use);
            let value = |member: Arc<Member>| {
                let is_up = member.reach.check(&member.name).is_ok();
                (vec![("cluster", member.name.clone())], f64::from(u8::from(is_up)))
            };
            all.map(value).collect()
        };
        let help = "Whether a cluster that applications use can be reached.";
        self.0.context.metrics.collect("application_cluster_reachable", help, values);
    }
}

/// The Secrets with credentials.
fn credentials() -> Selection {
    Selection {
        namespace: Some(SYSTEM_NAMESPACE.to_owned()),
        labels: Some(CLUSTER_CREDENTIAL_TYPE.to_owned()),
        ..Selection::default()
    }
}

impl Reach {
    fn new(probes: &Queue<Key>, name: &str) -> Self {
        let (problem, failures) = Default::default();
        Self { problem, failures, probes: probes.clone(), name: name.to_owned() }
    }

    /// Fails immediately if the cluster is unreachable.
    pub(crate) fn check(&self, cluster: &str) -> Result<(), ClusterError> {
        match &*self.problem.lock() {
            None => Ok(()),
            Some(why) => Err(ClusterError::unreachable(cluster, why.clone())),
        }
    }

    /// Records an error of a request. Returns the error of the cluster, if the request is not at fault.
    pub(crate) fn note(&self, error: &ClientError) -> Option<String> {
        if is_suspicious(error) {
            // A single slow or failed request may be at fault itself. A probe decides.
            self.probes.add(Key::cluster(self.name.as_str()));
            return None;
        }
        let why = problem(error)?;
        let mut problem = self.problem.lock();
        if problem.is_none() {
            // A cluster that only responds to probes is retried with backoff.
            let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(MAX_DOUBLINGS);
            self.probes.add_after(Key::cluster(self.name.as_str()), FIRST_PROBE * 2_u32.pow(failures));
        }
        Some(problem.get_or_insert(why).clone())
    }

    /// Records a successful request.
    pub(crate) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Sets the result of a probe. Returns whether it has changed.
    pub(super) fn set(&self, found: Option<String>) -> bool {
        let mut problem = self.problem.lock();
        let is_news = problem.is_some() != found.is_some();
        if is_news {
            *problem = found;
        }
        is_news
    }
}

/// Returns whether an error may be caused by the cluster or by the request.
fn is_suspicious(error: &ClientError) -> bool {
    match error {
        ClientError::Transport(source) => source.is::<tokio::time::error::Elapsed>(),
        ClientError::InvalidResponse(_) | ClientError::Api { code: 502..=504, .. } => true,
        _ => false,
    }
}

/// Returns why an error means that a cluster is unusable. A request that cannot be built does not mean that.
pub(super) fn problem(error: &ClientError) -> Option<String> {
    match error {
        ClientError::Transport(source) if source.is::<http::Error>() => None,
        ClientError::Transport(_) | ClientError::InvalidResponse(_) => Some(chain(error)),
        ClientError::Api { code: 401, message, .. } => Some(format!("it rejects the credential: {message}")),
        ClientError::Api { code: 502..=504, message, .. } => Some(message.clone()),
        _ => None,
    }
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
