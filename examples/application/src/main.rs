//! Runs the operator against the cluster of the current kubeconfig, `setpoint up` or any other. `--crd` prints its
//! CRD instead:
//!
//! ```console
//! $ cargo run -p setpoint-example-application -- --crd | kubectl apply -f -
//! $ cargo run -p setpoint-example-application -- --workers=2 --bind-address=127.0.0.1:8080
//! ```
//!
//! Leader election is on, so only one of several replicas is active. `--leader-election-leader-elect=false` turns it
//! off.

use anyhow::Context;
use setpoint::config::LeaderElectionConfig;
use setpoint::leader::ExitReason;
use setpoint::manager::stop_signal;
use setpoint::telemetry::Telemetry;
use setpoint::{Clock, ControllerConfig, Manager, Rng, Runtime};
use setpoint_example_application::{CONTROLLER, definition, runnables};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let leader_election = LeaderElectionConfig { leader_elect: true, ..LeaderElectionConfig::default() };
    let defaults = ControllerConfig { leader_election, ..ControllerConfig::default() };
    let (config, rest) = defaults.load(std::env::args().skip(1), |name| std::env::var(name).ok())?;
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--crd"] => {
            println!("{}", serde_json::to_string_pretty(&definition())?);
            return Ok(());
        }
        _ => anyhow::bail!("unknown arguments {rest:?}; there are --crd and\n{}", ControllerConfig::help()),
    }
    // Logs to stderr, and sends a trace of every reconcile to a collector if `tracing.endpoint` is set.
    let telemetry = Telemetry::configured(&config, CONTROLLER)?;
    tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(telemetry.as_ref().map(Telemetry::layer))
        .init();
    let cluster = kube::Config::infer().await.context("find a cluster: set KUBECONFIG")?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let mut manager = Manager::connect(CONTROLLER, cluster, runtime, config).await?;
    for runnable in runnables(&manager.context().clone()) {
        manager.add(runnable);
    }
    let ended = manager.run(stop_signal()?).await;
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    anyhow::ensure!(ended == ExitReason::Stopped, "lost the lease: another replica works now");
    Ok(())
}
