//! `setpoint controller-manager`: runs the built-in controllers against any Kubernetes API server.
//!
//! ```text
//!  connection.rs        the connection to the API server
//!  leader_election.rs   leader election
//!  serving.rs, secure.rs, delegated.rs, trust.rs   the secure port, its authentication and authorization
//!  certificates.rs      the self-signed certificate of the secure port
//!  signing.rs           the keys that sign certificates and tokens
//!  network.rs           pod CIDRs of nodes
//!  controller_flags.rs  the controllers' flags, as each of them declares them
//!  fixed_flags.rs       flags with only one supported value
//!  service_account_clients.rs   clients with the controllers' own service accounts
//!  start.rs             starting controllers one after the other
//!  shadow.rs            running beside the live controllers, without writing
//! ```
//!
//! The flags are kube-controller-manager's, with its defaults. An unknown flag is an error that names it.

mod certificates;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod controller_flags;
mod delegated;
pub(crate) mod fixed_flags;
pub(crate) mod leader_election;
pub(crate) mod multiplexed;
pub(crate) mod network;
pub(crate) mod secure;
mod service_account_clients;
pub(crate) mod serving;
pub(crate) mod shadow;
pub(crate) mod signing;
mod start;
mod trust;

use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::json;
use setpoint::leader::ExitReason;
use setpoint::metrics::Metrics;
use setpoint::serve::Operations;
use setpoint::source::{KubeSource, Source};
use setpoint::{Client, Clock, Manager, Rng, Runnable, Runtime};
use setpoint_controllers::{Entry, Options};
use setpoint_shadow::Shadow;
use tokio_util::sync::CancellationToken;

use crate::args::ControllerManager;
use crate::up::stop_signal;
use controller_flags::selection;
use secure::SecureHandler;
use service_account_clients::ServiceAccountClients;

/// The source of leader election events, and the user agent of requests.
const COMPONENT: &str = "kube-controller-manager";

pub(crate) async fn run(arguments: ControllerManager) -> anyhow::Result<()> {
    arguments.fixed.check()?;
    arguments.shadow.check()?;
    let controllers = selection(&arguments.controllers)?;
    arguments.controllers.warn_of_gates();
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let config = arguments.connection.config().await?;
    let options = options(&arguments, &config)?;
    let kube = kube::Client::try_from(config.clone()).context("cannot connect to the API server")?;
    let version = kube.apiserver_version().await.context("cannot reach the API server")?;

    let metrics = Metrics::new();
    let shadow = arguments.shadow.shadow(&controllers, &runtime, &metrics);
    let connected = Connected::new(config, kube, shadow)?;
    let stop = stop_signal()?;
    let mut manager = manager(&arguments, &connected, runtime.clone(), metrics)?;
    let mut accounts = service_account_clients(&arguments, &connected)?;
    let mut parts = Vec::new();
    for entry in &controllers {
        parts.extend(build(&arguments, &manager, &connected, accounts.as_mut(), entry, &options).await?);
    }
    let interval = arguments.generic.controller_start_interval;
    for part in start::staggered(parts, interval) {
        manager.add(part);
    }
    serve(&arguments, &controllers, &manager, connected.shadow.clone(), &stop).await?;
    if let Some(accounts) = accounts {
        tokio::spawn(accounts.keep(stop.clone()));
    }
    let how = if connected.shadow.is_some() { "in shadow mode against" } else { "against" };
    eprintln!("Running {} controllers {how} Kubernetes {}", controllers.len(), version.git_version);
    if let Some(shadow) = &connected.shadow {
        return arguments.shadow.run(shadow, &connected.requests, manager, stop).await;
    }
    match manager.run(stop).await {
        ExitReason::Stopped => Ok(()),
        ExitReason::Lost => bail!("lost the leader election lease"),
    }
}

/// The connections to the API server. In shadow mode neither client writes.
struct Connected {
    config: kube::Config,
    /// For watches, which have their own connections.
    watches: kube::Client,
    /// For everything else, on one connection.
    requests: kube::Client,
    shadow: Option<Shadow>,
}

impl Connected {
    fn new(config: kube::Config, watches: kube::Client, shadow: Option<Shadow>) -> anyhow::Result<Self> {
        let requests = multiplexed::client(&config, |request| request)?;
        let guarded = |client: kube::Client| match &shadow {
            Some(shadow) => shadow.guard(client),
            None => client,
        };
        Ok(Self { watches: guarded(watches), requests: guarded(requests), config, shadow })
    }

    fn source(&self, runtime: &Runtime) -> Arc<dyn Source> {
        match &self.shadow {
            Some(shadow) => shadow.source(self.watches.clone()),
            None => Arc::new(KubeSource::new(self.watches.clone(), runtime.clone())),
        }
    }
}

fn service_account_clients(
    arguments: &ControllerManager,
    connected: &Connected,
) -> anyhow::Result<Option<ServiceAccountClients>> {
    let wanted = arguments.connection.use_service_account_credentials;
    if wanted && connected.shadow.is_some() {
        bail!(
            "--use-service-account-credentials: cannot be combined with --shadow: requesting a token is a write"
        );
    }
    Ok(wanted.then(|| ServiceAccountClients::new(connected.watches.clone(), &connected.config)))
}

fn options(arguments: &ControllerManager, config: &kube::Config) -> anyhow::Result<Options> {
    let mut options = Options {
        gates: arguments.controllers.feature_gates.clone(),
        node_ranges: arguments.network.node_ranges(&arguments.service_cluster_ip_range)?,
        ..Options::default()
    };
    arguments.controllers.flags.apply(&mut options)?;
    arguments.keys.apply(&mut options, config)?;
    Ok(options)
}

fn manager(
    arguments: &ControllerManager,
    connected: &Connected,
    runtime: Runtime,
    metrics: Metrics,
) -> anyhow::Result<Manager> {
    let kube = connected.requests.clone();
    let client = client(arguments, kube.clone(), &connected.config, &runtime.clock, &metrics);
    let mut manager = Manager::with_metrics(client, connected.source(&runtime), runtime.clone(), metrics);
    // Randomized, so that the managers of a cluster do not resync at the same time.
    let resync = arguments.generic.min_resync_period.mul_f64(1.0 + runtime.rng.fraction());
    if !resync.is_zero() {
        manager.context().informers.resync_every(resync);
    }
    match (&connected.shadow, arguments.leader_election.election(&runtime.rng)) {
        (Some(shadow), _) => manager.add(shadow.verifier(kube)),
        (None, Some(election)) => manager.elect(election, COMPONENT)?,
        (None, None) => {}
    }
    Ok(manager)
}

/// Creates a client with the configured rate limits and the user agent.
fn client(
    arguments: &ControllerManager,
    kube: kube::Client,
    config: &kube::Config,
    clock: &Clock,
    metrics: &Metrics,
) -> Client {
    let limits = (arguments.connection.kube_api_qps, arguments.connection.kube_api_burst);
    connection::limited(kube, config, COMPONENT, limits, clock, metrics)
}

/// Builds the runnables of a controller, which uses its own service account if that is enabled.
async fn build(
    arguments: &ControllerManager,
    manager: &Manager,
    connected: &Connected,
    accounts: Option<&mut ServiceAccountClients>,
    entry: &Entry,
    options: &Options,
) -> anyhow::Result<Vec<Box<dyn Runnable>>> {
    let (context, config) = (manager.context(), &connected.config);
    if let Some(shadow) = &connected.shadow {
        // Each has its own rate limit, as in kube-controller-manager.
        let own =
            client(arguments, connected.requests.clone(), config, &context.runtime.clock, &context.metrics);
        return Ok(entry.parts(&shadow.context(context, own, entry.name), options));
    }
    let (Some(accounts), Some(account)) = (accounts, entry.account()) else {
        return Ok(entry.parts(context, options));
    };
    let kube = accounts.client(account).await?;
    let own = client(arguments, kube, config, &context.runtime.clock, &context.metrics);
    Ok(entry.parts(&context.acting_as(own), options))
}

async fn serve(
    arguments: &ControllerManager,
    controllers: &[&'static Entry],
    manager: &Manager,
    shadow: Option<Shadow>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let clock = &manager.context().runtime.clock;
    let Some(listener) = arguments.serving.listen().await? else { return Ok(()) };
    let acceptor = arguments.serving.acceptor(clock)?;
    let names: Vec<_> = controllers.iter().map(|entry| entry.name).collect();
    let flags: std::collections::BTreeMap<_, _> = arguments.controllers.flags.effective().collect();
    let configuration =
        json!({"kubecontrollermanager.config.k8s.io": {"controllers": names, "flags": flags}});
    let served = SecureHandler {
        operations: Operations::of(manager.context()),
        profiling: arguments.generic.profiling,
        metrics: manager.context().metrics.clone(),
        disabled_metrics: arguments.serving.disabled_metrics.clone(),
        configuration: configuration.to_string(),
        delegated: arguments.serving.delegated(clock, shadow.is_some()).await?,
        shadow,
    };
    let protocol = arguments.serving.protocol();
    tokio::spawn(secure::serve(listener, acceptor, protocol, Arc::new(served), stop.clone()));
    Ok(())
}
