//! A control plane: the API server, and a manager for everything on top of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::informer::RequestedKinds;
use setpoint::{Client, Context, Manager, Runnable, Runtime};
use setpoint_apiserver::auth::User;
use setpoint_apiserver::{ApiServer, Config, Features, StartError};
use setpoint_controllers::{Entry, FeatureGates, Options};
use setpoint_node::FleetOptions;
use setpoint_store::Store;

use crate::accounts::Accounts;
use crate::network::PodBackends;
use crate::readers::ReaderCheck;
use crate::{Connect, Denials, InProcess, Kubelets, identity, in_process_client, network};

/// The number of pods that simulated nodes update concurrently: enough to fill a group commit of the store.
const NODE_WORKERS: usize = 32;

/// The user agents of v1.34's components, which make them the managers of the fields they write.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KUBELET: &str = "kubelet";
/// The user agent of controllers from outside this workspace.
const OWN: &str = concat!("setpoint/", env!("CARGO_PKG_VERSION"));

/// A function that builds runnables from a manager's context, for custom controllers.
pub type Build = Arc<dyn Fn(&Context) -> Vec<Box<dyn Runnable>> + Send + Sync>;

/// What runs besides the API server. By default, nothing.
#[derive(Clone, Default)]
pub struct Components {
    pub controllers: Vec<&'static Entry>,
    pub controller_options: Options,
    /// Whether to create the controllers' service accounts as objects.
    pub controller_accounts: bool,
    pub scheduler: bool,
    /// The number of simulated nodes.
    pub nodes: usize,
    /// The number of zones for the simulated nodes. 0 for the default of three.
    pub zones: usize,
    /// Whether simulated nodes also record events about normal operation, as kubelets do.
    pub node_events: bool,
    /// Patterns of images that simulated nodes cannot pull. `*` stands for any text.
    pub missing_images: Vec<String>,
    /// Controllers from outside this workspace.
    pub own: Vec<Build>,
    /// What these read from caches, recorded as they are built.
    pub own_reads: RequestedKinds,
}

impl Components {
    /// Returns the identity of the manager itself, for its informers and its lease. A manager without any built-in part
    /// belongs to the caller, and has all permissions.
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

/// The number of zones in most regions.
const USUAL_ZONES: usize = 3;

/// A control plane in this process.
#[derive(Clone)]
pub struct Cluster {
    api: ApiServer,
    runtime: Runtime,
    denials: Denials,
    kubelets: Kubelets,
}

impl Cluster {
    /// Starts the API server with the contents of the store.
    pub async fn start(store: Arc<dyn Store>, runtime: Runtime) -> Result<Self, StartError> {
        Self::with_config(Config::new(store, runtime.clock.clone(), runtime.rng.fork()), runtime).await
    }

    /// Starts an API server with this configuration.
    pub async fn with_config(config: Config, runtime: Runtime) -> Result<Self, StartError> {
        Self::with_pod_backends(config, runtime, PodBackends::default()).await
    }

    /// Starts an API server with this configuration, for simulated pods that these local processes may stand in for.
    pub async fn with_pod_backends(
        mut config: Config,
        runtime: Runtime,
        backends: PodBackends,
    ) -> Result<Self, StartError> {
        let kubelets = network::add_nodes(&mut config, backends);
        Ok(Self { api: ApiServer::start(config).await?, runtime, denials: Denials::default(), kubelets })
    }

    /// Adds the APIs of the enabled feature gates.
    pub fn with_gates(config: Config, gates: &FeatureGates) -> Config {
        config.with_features(Self::features(gates))
    }

    /// Returns the enabled feature gates that matter to the API server.
    pub fn features(gates: &FeatureGates) -> Features {
        Features::enabled_by(|feature| gates.on(feature))
    }

    /// Adds the metrics API for simulated nodes to a server's kinds, as a metrics server would provide it.
    pub fn serve_metrics(config: &mut Config) {
        config.kinds.extend(crate::metrics::kinds(&config.store, &config.clock));
    }

    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the requests of built-in parts that were denied for lack of permission. There should be none.
    pub fn denials(&self) -> &Denials {
        &self.denials
    }

    /// Returns the simulated nodes, as their kubelets.
    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// Returns a client with all permissions, for users and tests, not for parts of the control plane.
    pub fn client(&self) -> Client {
        Client::new(in_process_client(&self.api, identity::admin()))
    }

    /// Returns the in-process connection to the API server.
    pub fn connection(&self) -> InProcess {
        InProcess::new(self.api.clone(), self.denials.clone())
    }

    /// Builds a manager of these parts on the in-process transport. Run it; dropping the run acts like a crash.
    pub fn manager(&self, parts: &Components) -> Manager {
        self.manager_on(&self.connection(), parts)
    }

    /// Like [`manager`](Self::manager), on another connection, for example with fault injection.
    pub fn manager_on(&self, connection: &dyn Connect, parts: &Components) -> Manager {
        let user = parts.manager();
        let client = Client::new(connection.client(&user)).with_user_agent(CONTROLLER_MANAGER);
        let mut manager = Manager::new(client, connection.source(&user), self.runtime.clone());
        let mut assembly = Assembly::new(connection, manager.context(), &self.kubelets);
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

/// The parts of a manager under construction.
struct Assembly<'a> {
    connection: &'a dyn Connect,
    context: &'a Context,
    kubelets: &'a Kubelets,
    runnables: Vec<Box<dyn Runnable>>,
    /// The other identities that read from the manager's caches, and what they read.
    readers: Vec<(User, RequestedKinds)>,
}

impl<'a> Assembly<'a> {
    fn new(connection: &'a dyn Connect, context: &'a Context, kubelets: &'a Kubelets) -> Self {
        Self { connection, context, kubelets, runnables: Vec::new(), readers: Vec::new() }
    }

    /// Returns the context for a part with the identity `user` and the field manager `user_agent`.
    fn with_client_as(&self, user: &User, user_agent: &str) -> Context {
        self.context.acting_as(Client::new(self.connection.client(user)).with_user_agent(user_agent))
    }

    /// Like [`with_client_as`](Self::with_client_as), but also checks reads from the shared caches against the user's
    /// permissions.
    fn with_source_as(&mut self, user: User, user_agent: &str) -> Context {
        let (mut context, requested) = (self.with_client_as(&user, user_agent), RequestedKinds::default());
        context.informers = context.informers.tracking(&requested);
        self.readers.push((user, requested));
        context
    }

    fn controllers(&mut self, parts: &Components) {
        let mut contexts: BTreeMap<Option<&str>, Context> = BTreeMap::new();
        for entry in &parts.controllers {
            // Controllers with the same account share its client.
            let context = contexts
                .entry(entry.account())
                .or_insert_with(|| self.with_client_as(&identity::controller(entry), CONTROLLER_MANAGER))
                .clone();
            self.runnables.extend(entry.parts(&context, &parts.controller_options));
        }
        if parts.controller_accounts {
            let names = contexts.into_keys().flatten().collect();
            let (client, clock) = (self.context.client.clone(), self.context.runtime.clock.clone());
            self.runnables.push(Box::new(Accounts { client, clock, names }));
        }
    }

    fn scheduler(&mut self, parts: &Components) {
        let context = self.with_source_as(identity::scheduler(), SCHEDULER);
        self.runnables.extend(setpoint_scheduler::runnables(&context, &parts.scheduler_settings()));
    }

    fn nodes(&mut self, parts: &Components) {
        let fleet = FleetOptions {
            nodes: parts.nodes,
            zones: if parts.zones == 0 { USUAL_ZONES } else { parts.zones },
            records_events: parts.node_events,
            workers: NODE_WORKERS,
            missing_images: parts.missing_images.clone(),
        };
        let context = self.with_source_as(identity::node_simulator(), KUBELET);
        let of_node = |name: &str| self.with_client_as(&identity::node(name), KUBELET);
        self.runnables.extend(setpoint_node::runnables(&context, of_node, fleet, self.kubelets));
    }

    /// Custom controllers get all permissions. Checking what they need is up to their own tests.
    fn own(&mut self, parts: &Components) {
        if parts.own.is_empty() {
            return;
        }
        let mut context = self.with_client_as(&identity::admin(), OWN);
        context.informers = context.informers.tracking(&parts.own_reads);
        self.runnables.extend(parts.own.iter().flat_map(|build| build(&context)));
    }
}
