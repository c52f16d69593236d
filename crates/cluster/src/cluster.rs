//! A control plane: its API server, and a manager for everything that stands on it.

use std::sync::Arc;

use setpoint::{Client, Context, Manager, Runnable, Runtime};
use setpoint_apiserver::auth::User;
use setpoint_apiserver::{ApiServer, Config, Features, StartError};
use setpoint_controllers::{Entry, FeatureGates, Options};
use setpoint_node::FleetOptions;
use setpoint_store::Store;

use crate::{InProcessSource, in_process_client};

/// Pods that simulated nodes drive at once: enough to fill a group commit of the store.
const NODE_WORKERS: usize = 32;

/// What the components of v1.34 call themselves, which makes them the managers of the fields that they write.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KUBELET: &str = "kubelet";

/// Makes parts of a manager from its context: what somebody's own controllers come as.
pub type Build = Arc<dyn Fn(&Context) -> Vec<Box<dyn Runnable>> + Send + Sync>;

/// What runs beside the API server: nothing, unless it is asked for.
#[derive(Clone, Default)]
pub struct Parts {
    pub controllers: Vec<&'static Entry>,
    pub controller_options: Options,
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
}

impl Cluster {
    /// Starts the API server on what the store holds.
    pub async fn start(store: Arc<dyn Store>, runtime: Runtime) -> Result<Self, StartError> {
        Self::with_config(Config::new(store, runtime.clock.clone(), runtime.rng.fork()), runtime).await
    }

    /// Starts an API server that is configured otherwise.
    pub async fn with_config(config: Config, runtime: Runtime) -> Result<Self, StartError> {
        Ok(Self { api: ApiServer::start(config).await?, runtime })
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

    /// A client with all rights.
    pub fn client(&self) -> Client {
        Client::new(in_process_client(&self.api, User::system("system:admin")))
    }

    /// A manager of these parts on the in-process transport. Run it; dropping its run is a crash.
    pub fn manager(&self, parts: &Parts) -> Manager {
        let source = Arc::new(InProcessSource::new(self.api.clone()));
        self.manager_on(self.client(), source, parts)
    }

    /// The same on another client or source: a fault layer around the in-process ones.
    pub fn manager_on(
        &self,
        client: Client,
        source: Arc<dyn setpoint::source::Source>,
        parts: &Parts,
    ) -> Manager {
        let mut manager = Manager::new(client, source, self.runtime.clone());
        let context = manager.context().clone();
        let managing = context.with_user_agent(CONTROLLER_MANAGER);
        let controllers =
            parts.controllers.iter().flat_map(|entry| entry.parts(&managing, &parts.controller_options));
        let mut runnables: Vec<_> = controllers.collect();
        if parts.scheduler {
            runnables.extend(setpoint_scheduler::runnables(
                &context.with_user_agent(SCHEDULER),
                &parts.scheduler_settings(),
            ));
        }
        if parts.nodes > 0 {
            let zones = if parts.zones == 0 { USUAL_ZONES } else { parts.zones };
            let fleet = FleetOptions {
                nodes: parts.nodes,
                zones,
                talkative: parts.talkative_nodes,
                workers: NODE_WORKERS,
            };
            runnables.extend(setpoint_node::runnables(&context.with_user_agent(KUBELET), fleet));
        }
        runnables.extend(parts.own.iter().flat_map(|build| build(&context)));
        for runnable in runnables {
            manager.add(runnable);
        }
        manager
    }
}
