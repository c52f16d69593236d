//! `setpoint scheduler`: runs the scheduler against any Kubernetes API server.
//!
//! ```text
//!  configuration.rs   the KubeSchedulerConfiguration of --config
//! ```
//!
//! The flags are kube-scheduler's, with its defaults. As there, with --config the flags of the connection have no effect,
//! and those of the leader election override the file.

mod configuration;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, Args};
use serde_json::json;
use setpoint::leader::{ElectionConfig, ExitReason};
use setpoint::metrics::Metrics;
use setpoint::serve::Operations;
use setpoint::source::KubeSource;
use setpoint::{Clock, Manager, Rng, Runtime};
use setpoint_controllers::FeatureGates;
use setpoint_controllers::flags::duration;
use setpoint_scheduler::Settings;
use tokio_util::sync::CancellationToken;

use self::configuration::{ClientConnection, Configuration, LeaderElection};
use crate::controller_manager::connection::{ConnectionFlags, limited};
use crate::controller_manager::fixed_flags::FixedFlags;
use crate::controller_manager::multiplexed;
use crate::controller_manager::secure::{self, SecureHandler};
use crate::controller_manager::serving::Serving;
use crate::up::stop_signal;

/// The source of leader election events, and the user agent of requests.
const COMPONENT: &str = "kube-scheduler";

#[derive(Debug, Args)]
#[command(mut_args(with_own_defaults))]
pub(crate) struct Scheduler {
    /// File with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). What it asks for beyond the default
    /// profile is rejected with an explanation.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve CPU and heap profiles below /debug/pprof on the secure port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    profiling: bool,
    /// Feature gates, as Name=true,Other=false.
    #[arg(long, default_value = "", value_name = "GATES", hide_default_value = true)]
    feature_gates: FeatureGates,
    #[command(flatten)]
    connection: ConnectionFlags,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    fixed: FixedFlags<true>,
}

/// They override the file of --config, so they have no defaults of their own.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionFlags {
    /// Schedule only while holding the leader election lease [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set,
        value_name = "BOOL")]
    leader_elect: Option<bool>,
    /// How long standbys wait before taking over a lease that is not renewed [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_lease_duration: Option<Duration>,
    /// How long the leader keeps trying to renew its lease before it gives up [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_renew_deadline: Option<Duration>,
    /// Time between attempts to acquire or renew the lease [default: 2s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_retry_period: Option<Duration>,
    /// Kind of the lock object; only leases are supported [default: leases].
    #[arg(long, value_name = "KIND", value_parser = ["leases"])]
    leader_elect_resource_lock: Option<String>,
    /// Name of the lease [default: kube-scheduler].
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the lease [default: kube-system].
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,
}

fn with_own_defaults(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "secure_port" => arg.default_value("10259"),
        "kube_api_qps" => arg.default_value("50"),
        "kube_api_burst" => arg.default_value("100"),
        "use_service_account_credentials" => arg.hide(true),
        _ => arg,
    }
}

impl ElectionFlags {
    fn apply(&self, election: &mut LeaderElection) {
        let Self { leader_elect_lease_duration: lease, leader_elect_renew_deadline: renew, .. } = self;
        election.leader_elect = self.leader_elect.unwrap_or(election.leader_elect);
        election.lease_duration = lease.unwrap_or(election.lease_duration);
        election.renew_deadline = renew.unwrap_or(election.renew_deadline);
        election.retry_period = self.leader_elect_retry_period.unwrap_or(election.retry_period);
        if let Some(name) = &self.leader_elect_resource_name {
            election.resource_name.clone_from(name);
        }
        if let Some(namespace) = &self.leader_elect_resource_namespace {
            election.resource_namespace.clone_from(namespace);
        }
    }
}

impl Scheduler {
    /// Returns the configuration: the file's, or what the flags say.
    fn configuration(&self) -> anyhow::Result<Configuration> {
        let mut configuration = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("--config: cannot read {}", path.display()))?;
                Configuration::parse(&text).with_context(|| format!("--config {}", path.display()))?
            }
            None => Configuration {
                client_connection: ClientConnection {
                    kubeconfig: self.connection.kubeconfig.clone(),
                    qps: self.connection.kube_api_qps,
                    burst: self.connection.kube_api_burst,
                },
                enable_profiling: self.profiling,
                ..Configuration::default()
            },
        };
        self.election.apply(&mut configuration.leader_election);
        Ok(configuration)
    }
}

pub(crate) async fn run(arguments: Scheduler) -> anyhow::Result<()> {
    arguments.fixed.check()?;
    for warning in arguments.feature_gates.warnings() {
        eprintln!("{warning}");
    }
    if arguments.connection.use_service_account_credentials {
        bail!("--use-service-account-credentials: supported only by setpoint controller-manager");
    }
    let configuration = arguments.configuration()?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let connection = &configuration.client_connection;
    let config = arguments.connection.config_of(connection.kubeconfig.as_ref()).await?;
    let watches = kube::Client::try_from(config.clone()).context("cannot connect to the API server")?;
    let version = watches.apiserver_version().await.context("cannot reach the API server")?;
    let requests = multiplexed::client(&config, |request| request)?;

    let metrics = Metrics::new();
    let limits = (connection.qps, connection.burst);
    let client = limited(requests, &config, COMPONENT, limits, &runtime.clock, &metrics);
    let source = Arc::new(KubeSource::new(watches, runtime.clone()));
    let mut manager = Manager::with_metrics(client, source, runtime.clone(), metrics);
    if let Some(election) = configuration.leader_election.election(&runtime.rng) {
        manager.elect(election, COMPONENT)?;
    }
    let settings = Settings { device_taints: arguments.feature_gates.on("DRADeviceTaints") };
    for part in setpoint_scheduler::runnables(manager.context(), &settings) {
        manager.add(part);
    }
    let stop = stop_signal()?;
    serve(&arguments, &configuration, &manager, &stop).await?;
    eprintln!("Scheduling against Kubernetes {}", version.git_version);
    match manager.run(stop).await {
        ExitReason::Stopped => Ok(()),
        ExitReason::Lost => bail!("lost the leader election lease"),
    }
}

async fn serve(
    arguments: &Scheduler,
    configuration: &Configuration,
    manager: &Manager,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let clock = &manager.context().runtime.clock;
    let Some(listener) = arguments.serving.listen().await? else { return Ok(()) };
    let acceptor = arguments.serving.acceptor(clock)?;
    let served = SecureHandler {
        operations: Operations::of(manager.context()),
        profiling: configuration.enable_profiling,
        metrics: manager.context().metrics.clone(),
        disabled_metrics: arguments.serving.disabled_metrics.clone(),
        configuration: json!({"componentconfig": configuration.shown()}).to_string(),
        delegated: arguments.serving.delegated(clock, false).await?,
        shadow: None,
    };
    let protocol = arguments.serving.protocol();
    tokio::spawn(secure::serve(listener, acceptor, protocol, Arc::new(served), stop.clone()));
    Ok(())
}

impl LeaderElection {
    fn election(&self, rng: &Rng) -> Option<ElectionConfig> {
        let identity = ElectionConfig::own_identity(rng);
        self.leader_elect.then(|| ElectionConfig {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            ..ElectionConfig::new(&self.resource_namespace, &self.resource_name, identity)
        })
    }
}
