//! A control plane: its API server, and a manager for everything that stands on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::informer::Requested;
use setpoint::{Client, Context, Manager, Runnable, Runtime};
use setpoint_apiserver::auth::User;
use setpoint_apiserver::{ApiServer, Config, Features, StartError};
use setpoint_controllers::{Entry, FeatureGates, Options};
use setpoint_node::FleetOptions;
use setpoint_store::Store;

use crate::accounts::Accounts;
use crate::readers::ReaderCheck;
use crate::{Connect, Denials, InProcess, identity, in_process_client};

/// Pods that simulated nodes drive at once: enough to fill a group commit of the store.
const NODE_WORKERS: usize = 32;

/// What the components of v1.34 call themselves, which makes them the managers of the fields that they write.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KUBELET: &str = "kubelet";
/// Controllers that are not of this workspace.
const OWN: &str = concat!("setpoint/", env!("CARGO_PKG_VERSION"));

/// Makes parts of a manager from its context: what somebody's own controllers come as.
pub type Build = Arc<dyn Fn(&Context) -> Vec<Box<dyn Runnable>> + Send + Sync>;

/// What runs beside the API server: nothing, unless it is asked for.
#[derive(Clone, Default)]
pub struct Parts {
    pub controllers: Vec<&'static Entry>,
    pub controller_options: Options,
    /// Whether the service accounts of the controllers exist as objects.
    pub controller_accounts: bool,
    pub scheduler: bool,
    /// Simulated nodes; 0 for none.
    pub nodes: usize,
    /// How many zones the simulated nodes are spread over; 0 for the usual three.
    pub zones: usize,
    /// Whether simulated nodes tell by events what goes as it should, too, as kubelets do.
    pub talkative_nodes: bool,
    /// Controllers that are not of this workspace.
    pub own: Vec<Build>,
}

impl Parts {
    /// Who the manager itself speaks as: its informers and its lease. One that runs nothing of this workspace is
    /// somebody else's, with all rights.
    fn manager(&self) -> User {
        match self.controllers.is_empty() && !self.scheduler && self.nodes == 0 {
            true => identity::admin(),
            false => identity::manager(),
        }
    }

    fn scheduler_settings(&self) -> setpoint_scheduler::Settings {
        let gates = &self.controller_options.gates;
        setpoint_scheduler::Settings { device_taints: gates.on("DRADeviceTaints") }
    }
}

/// As many zones as most regions have.
const USUAL_ZONES: usize = 3;

/// A control plane in this process.
#[derive(Clone)]
pub struct Cluster {
    api: ApiServer,
    runtime: Runtime,
    denials: Denials,
}

impl Cluster {
    /// Starts the API server on what the store holds.
    pub async fn start(store: Arc<dyn Store>, runtime: Runtime) -> Result<Self, StartError> {
        Self::with_config(Config::new(store, runtime.clock.clone(), runtime.rng.fork()), runtime).await
    }

    /// Starts an API server that is configured otherwise.
    pub async fn with_config(config: Config, runtime: Runtime) -> Result<Self, StartError> {
        Ok(Self { api: ApiServer::start(config).await?, runtime, denials: Denials::default() })
    }

    /// A server that serves what the features that are on are about.
    pub fn with_gates(config: Config, gates: &FeatureGates) -> Config {
        config.with_features(Features::that(|feature| gates.on(feature)))
    }

    /// Adds to a server's kinds what simulated nodes measure: the metrics API, as a metrics server provides it.
    pub fn serve_metrics(config: &mut Config) {
        config.kinds.extend(crate::metrics::kinds(&config.store, &config.clock));
    }

    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What parts of the control plane were refused for want of a right. There should be nothing.
    pub fn denials(&self) -> &Denials {
        &self.denials
    }

    /// A client with all rights: for people and tests, not for parts of the control plane.
    pub fn client(&self) -> Client {
        Client::new(in_process_client(&self.api, identity::admin()))
    }

    /// How parts of the control plane reach the API server.
    pub fn connection(&self) -> InProcess {
        InProcess::new(self.api.clone(), self.denials.clone())
    }

    /// A manager of these parts on the in-process transport. Run it; dropping its run is a crash.
    pub fn manager(&self, parts: &Parts) -> Manager {
        self.manager_on(&self.connection(), parts)
    }

    /// The same on another connection: a fault layer around the in-process one.
    pub fn manager_on(&self, connection: &dyn Connect, parts: &Parts) -> Manager {
        let user = parts.manager();
        let client = Client::new(connection.client(&user)).with_user_agent(CONTROLLER_MANAGER);
        let mut manager = Manager::new(client, connection.source(&user), self.runtime.clone());
        let mut assembly = Assembly::new(connection, manager.context());
        assembly.controllers(parts);
        if parts.scheduler {
            assembly.scheduler(parts);
        }
        if parts.nodes > 0 {
            assembly.nodes(parts);
        }
        assembly.own(parts);
        let Assembly { runnables, readers, .. } = assembly;
        for runnable in runnables {
            manager.add(runnable);
        }
        if !readers.is_empty() {
            let (api, denials) = (self.api.clone(), self.denials.clone());
            manager.add(ReaderCheck { api, denials, readers });
        }
        manager
    }
}

/// The parts of a manager as they come together.
struct Assembly<'a> {
    connection: &'a dyn Connect,
    context: &'a Context,
    runnables: Vec<Box<dyn Runnable>>,
    /// Who else reads from the manager's caches, and what.
    readers: Vec<(User, Requested)>,
}

impl<'a> Assembly<'a> {
    fn new(connection: &'a dyn Connect, context: &'a Context) -> Self {
        Self { connection, context, runnables: Vec::new(), readers: Vec::new() }
    }

    /// The context of a part that speaks as `user`, and that names itself `user_agent` as a field manager.
    fn speaking_as(&self, user: &User, user_agent: &str) -> Context {
        self.context.acting_as(Client::new(self.connection.client(user)).with_user_agent(user_agent))
    }

    /// The same for a part whose reads from the shared caches are checked against its own rights.
    fn reading_as(&mut self, user: User, user_agent: &str) -> Context {
        let (mut context, requested) = (self.speaking_as(&user, user_agent), Requested::default());
        context.informers = context.informers.noting(&requested);
        self.readers.push((user, requested));
        context
    }

    fn controllers(&mut self, parts: &Parts) {
        let mut contexts: BTreeMap<Option<&str>, Context> = BTreeMap::new();
        for entry in &parts.controllers {
            // Controllers of one account share its client.
            let context = contexts
                .entry(entry.account())
                .or_insert_with(|| self.speaking_as(&identity::controller(entry), CONTROLLER_MANAGER))
                .clone();
            self.runnables.extend(entry.parts(&context, &parts.controller_options));
        }
        if parts.controller_accounts {
            let names = contexts.into_keys().flatten().collect();
            let (client, clock) = (self.context.client.clone(), self.context.runtime.clock.clone());
            self.runnables.push(Box::new(Accounts { client, clock, names }));
        }
    }

    fn scheduler(&mut self, parts: &Parts) {
        let context = self.reading_as(identity::scheduler(), SCHEDULER);
        self.runnables.extend(setpoint_scheduler::runnables(&context, &parts.scheduler_settings()));
    }

    fn nodes(&mut self, parts: &Parts) {
        let fleet = FleetOptions {
            nodes: parts.nodes,
            zones: if parts.zones == 0 { USUAL_ZONES } else { parts.zones },
            talkative: parts.talkative_nodes,
            workers: NODE_WORKERS,
        };
        let context = self.reading_as(identity::node_simulator(), KUBELET);
        let of_node = |name: &str| self.speaking_as(&identity::node(name), KUBELET);
        self.runnables.extend(setpoint_node::runnables(&context, of_node, fleet));
    }

    /// The controllers of others act with all rights: what they need is for their own tests to say.
    fn own(&mut self, parts: &Parts) {
        if parts.own.is_empty() {
            return;
        }
        let context = self.speaking_as(&identity::admin(), OWN);
        self.runnables.extend(parts.own.iter().flat_map(|build| build(&context)));
    }
}
