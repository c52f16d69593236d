//! Runs the operator against the cluster of the current kubeconfig, `setpoint up` or any other. `--crd` prints its
//! CRD instead:
//!
//! ```console
//! $ cargo run -p setpoint-example-operator-template -- --crd | kubectl apply -f -
//! $ cargo run -p setpoint-example-operator-template -- --workers=2 --bind-address=127.0.0.1:8080
//! ```
//!
//! Leader election is on, so only one of several replicas is active. `--leader-election-leader-elect=false` turns it
//! off.

use setpoint::{ControllerConfig, Manager};
use setpoint_example_operator_template::{CONTROLLER, controller, definition};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().any(|argument| argument == "--crd") {
        println!("{}", serde_json::to_string_pretty(&definition())?);
        return Ok(());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let config = ControllerConfig::leader_elected().with_env()?;
    Ok(Manager::infer(CONTROLLER, config).await?.with(controller).run_until_signal().await?)
}
