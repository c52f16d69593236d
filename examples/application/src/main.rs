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

use setpoint::telemetry::Telemetry;
use setpoint::{ControllerConfig, Manager};
use setpoint_example_application::{CONTROLLER, controller, definition};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().any(|argument| argument == "--crd") {
        println!("{}", serde_json::to_string_pretty(&definition())?);
        return Ok(());
    }
    let config = ControllerConfig::leader_elected().with_env()?;
    // Logs to stderr, and sends a trace of every reconcile to a collector if `tracing.endpoint` is set.
    let telemetry = Telemetry::configured(&config, CONTROLLER)?;
    tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(telemetry.as_ref().map(Telemetry::layer))
        .init();
    let ended = Manager::infer(CONTROLLER, config).await?.with(controller).run_until_signal().await;
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    Ok(ended?)
}
