//! A seeded cluster on a virtual clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::Request;
use parking_lot::Mutex;
use setpoint::{Client, Clock, Key, Kind, Manager, Object, Rng, Runtime};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::{Config, admission};
use setpoint_cluster::webhooks::InProcess;
use setpoint_cluster::{Cluster, Components, Denials, Kubelets};
use setpoint_store::{MemoryStore, Store};
use tokio_util::sync::CancellationToken;

use crate::client::Faulty;
use crate::faults::{Callee, Fault, Faults};
use crate::graph::{Counts, Graph, History};
use crate::link::{Link, OverLink};
use crate::members::Member;
use crate::permissions::{Permissions, Requests};
use crate::snapshot::{self, Snapshot};
use crate::trace::Trace;

/// The start time of every simulation.
pub(crate) const EPOCH: &str = "2025-01-01T00:00:00Z";

/// How long a crashed manager takes to restart.
const RESTART: Duration = Duration::from_secs(5);

/// How often a script polls for a condition, and for how long at most.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// A cluster whose manager is subject to faults, and a client that is not.
pub struct World {
    cluster: Cluster,
    store: Arc<MemoryStore>,
    parts: Components,
    faults: Faults,
    trace: Trace,
    /// What the author's controllers have requested.
    requests: Requests,
    /// Other API servers of this world, by name.
    members: Mutex<BTreeMap<String, Member>>,
}

impl World {
    /// Runs `inside` in a new simulated cluster, on its own paused, single-threaded runtime.
    pub fn simulate<T>(
        seed: u64,
        parts: Components,
        faults: Vec<Fault>,
        inside: impl AsyncFnOnce(&Self) -> T,
    ) -> T {
        in_virtual_time(async {
            let start = Snapshot::of_new(&parts).await;
            Self::run_from(&start, seed, parts, faults, inside).await
        })
    }

    /// The same in a cluster that has the objects of a snapshot, and no history.
    pub fn simulate_from<T>(
        start: &Snapshot,
        seed: u64,
        parts: Components,
        faults: Vec<Fault>,
        inside: impl AsyncFnOnce(&Self) -> T,
    ) -> T {
        in_virtual_time(Self::run_from(start, seed, parts, faults, inside))
    }

    async fn run_from<T>(
        start: &Snapshot,
        seed: u64,
        parts: Components,
        faults: Vec<Fault>,
        inside: impl AsyncFnOnce(&Self) -> T,
    ) -> T {
        let world = Self::start(start, seed, parts, faults, InProcess::default()).await;
        let result = world.alive(inside(&world)).await;
        world.denials().assert_none();
        result
    }

    /// Runs `inside` in a new cluster whose manager is not running.
    pub(crate) fn without_manager<T>(
        seed: u64,
        parts: Components,
        inside: impl AsyncFnOnce(&Self) -> T,
    ) -> T {
        in_virtual_time(async {
            let start = Snapshot::of_new(&parts).await;
            inside(&Self::start(&start, seed, parts, Vec::new(), InProcess::default()).await).await
        })
    }

    /// Starts a cluster with the objects of a snapshot, and a network that has webhooks and other servers.
    pub(crate) async fn start(
        start: &Snapshot,
        seed: u64,
        parts: Components,
        faults: Vec<Fault>,
        network: InProcess,
    ) -> Self {
        let clock = Clock::simulated(EPOCH.parse().expect("a constant time"));
        let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(seed) };
        let store = start.fork(&clock);
        let egress = EgressConfig { dial: Arc::new(network), ..EgressConfig::default() };
        let admission = admission::default_plugins_and_node_restriction();
        let config = Config { admission, egress, ..snapshot::config(store.clone(), &runtime, &parts) };
        let cluster = Cluster::with_config(config, runtime).await.expect("a snapshot can be started on");
        let trace = Trace::new(clock);
        let faults = Faults::new(faults, trace.clone());
        let of_kubelets = faults.clone();
        cluster.kubelets().interfere(move || {
            let faults = of_kubelets.clone();
            async move { faults.on_reply(Callee::Kubelet).await }.boxed()
        });
        let requests = Requests::default();
        Self { cluster, store, parts, faults, trace, requests, members: Mutex::default() }
    }

    /// Runs `script` while the manager runs, crashes and restarts.
    async fn alive<T>(&self, script: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            result = script => result,
            () = self.run_manager() => unreachable!("the manager is always restarted"),
        }
    }

    pub(crate) async fn run_manager(&self) {
        loop {
            let connection = Faulty {
                inner: self.cluster.connection(),
                faults: self.faults.clone(),
                link: None,
                requests: self.requests.clone(),
            };
            let manager = self.cluster.manager_on(&connection, &self.parts);
            tokio::select! {
                biased;
                () = self.faults.crashed() => {}
                _ = manager.run(CancellationToken::new()) => {}
            }
            tokio::time::sleep(RESTART).await;
        }
    }

    /// Creates another manager with these parts, on its own link. The caller runs it.
    pub fn replica(&self, link: &Link, parts: &Components) -> Manager {
        let connection = OverLink { inner: self.cluster.connection(), link: link.clone() };
        self.cluster.manager_on(&connection, parts)
    }

    /// Restarts the manager, and remembers the state that the new one sees.
    pub async fn remember_view(&self) {
        self.faults.remember_view();
        self.restart().await;
    }

    /// Restarts the manager with the remembered state: its API server is stale at first, then catches up.
    pub async fn restart_on_remembered_view(&self) {
        self.faults.show_remembered_view();
        self.restart().await;
    }

    /// Kills the manager, and waits until another one runs.
    pub async fn restart(&self) {
        self.faults.kill();
        self.clock().sleep(2 * RESTART).await;
    }

    /// Returns the user's client, which is not subject to faults.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    pub fn clock(&self) -> &Clock {
        &self.cluster.runtime().clock
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the requests of built-in components that were denied because of missing permissions.
    pub fn denials(&self) -> &Denials {
        self.cluster.denials()
    }

    /// Returns what the author's controllers have asked of the API server, across crashes: the kinds in their caches,
    /// and every request. A role with these [rules](Permissions::rules) permits all of it.
    pub fn permissions(&self) -> Permissions {
        let (mut permissions, owners) = self.requests.all();
        for (kind, _) in self.parts.own_reads.all() {
            permissions.add_read(&kind);
        }
        let owners = owners.iter().filter_map(|(api_version, kind)| self.served(api_version, kind));
        owners.for_each(|kind| permissions.add_owner(&kind));
        permissions
    }

    /// Returns the simulated nodes, as their kubelets.
    pub fn kubelets(&self) -> &Kubelets {
        self.cluster.kubelets()
    }

    /// Creates an object as the user.
    pub async fn create(&self, kind: &Kind, namespace: Option<&str>, body: serde_json::Value) -> Object {
        self.client()
            .create(kind, namespace, &body)
            .await
            .unwrap_or_else(|error| panic!("cannot create {body}: {error}"))
    }

    /// Waits, in virtual time, until `settled` holds for the object. Panics with its state if that does not happen.
    pub async fn until(&self, kind: &Kind, key: &Key, settled: impl Fn(Option<&serde_json::Value>) -> bool) {
        let deadline = self.clock().now() + MAX_WAIT;
        loop {
            let value = self.get(kind, key).await;
            if settled(value.as_ref()) {
                return;
            }
            assert!(
                self.clock().now() < deadline,
                "{kind} {key} never got there:\n{}\nit is {value:?}",
                self.trace.text()
            );
            self.clock().sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the current object.
    pub async fn get(&self, kind: &Kind, key: &Key) -> Option<serde_json::Value> {
        match self.client().get(kind, key).await {
            Ok(object) => Some(object.decode().expect("the API server answers with JSON")),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("cannot get {kind} {key}: {error}"),
        }
    }

    /// Lists the current objects of a kind, in one namespace or in all.
    pub async fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<serde_json::Value> {
        let request = Request::get(kind.collection_path(namespace)).body(Vec::new());
        let request = request.expect("the path of a kind is a path");
        let list: serde_json::Value =
            self.client().kube().request(request).await.expect("a list is answered");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Lets time pass.
    pub async fn pass(&self, duration: Duration) {
        self.clock().sleep(duration).await;
    }

    /// Returns every change so far, in order.
    pub fn history(&self) -> History {
        History::of(&*self.store, &self.cluster.api().registry())
    }

    /// Returns the current objects, including those of other API servers.
    pub async fn graph(&self) -> Graph {
        let mut graph = Graph::of(self.cluster.api()).await;
        let members = self.members.lock().clone();
        for (name, member) in &members {
            graph.add(name, member.graph().await);
        }
        graph
    }

    pub fn counts(&self) -> Counts {
        let mut counts = self.history().counts();
        for (name, member) in &*self.members.lock() {
            let of_member = member.counts().0;
            counts.0.extend(of_member.into_iter().map(|(kind, count)| (format!("{name} {kind}"), count)));
        }
        counts
    }

    pub(crate) fn joined(&self, name: &str, member: &Member) {
        self.members.lock().insert(name.to_owned(), member.clone());
    }

    pub(crate) fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    pub(crate) fn api(&self) -> &setpoint_apiserver::ApiServer {
        self.cluster.api()
    }

    /// Returns the kind with this name, if it is served.
    pub(crate) fn served(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let registry = self.cluster.api().registry();
        let served = &registry.kind(group, version, kind)?.kind;
        Some(Kind::new(group, version, kind, &served.plural, served.is_namespaced()))
    }

    /// Returns the number of changes so far, except for Leases and Events, which never stop changing.
    pub(crate) fn changes_but_heartbeats(&self) -> usize {
        let quiet = |object: &serde_json::Value| matches!(object["kind"].as_str(), Some("Lease" | "Event"));
        self.history().changes().filter(|(_, object)| !quiet(object)).count()
    }

    /// Returns the newest revision of the store. If it has not changed, nothing was written.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }
}

/// Runs a future on its own paused, single-threaded runtime.
pub(crate) fn in_virtual_time<T>(inside: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing from the system").block_on(inside)
}
