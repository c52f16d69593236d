//! Runs the operator against the cluster of the current kubeconfig, or the cluster that it runs in. `--crds` prints its
//! CRDs instead:
//!
//! ```console
//! $ cargo run -- --crds | kubectl apply --server-side -f -
//! $ cargo run -- --workers=2 --bind-address=127.0.0.1:8080
//! ```
//!
//! Leader election is on, so only one of several replicas is active. `--leader-election-leader-elect=false` turns it
//! off. `RUST_LOG` selects what is logged.

use setpoint::{ControllerConfig, Manager};
use tracing_subscriber::EnvFilter;

use setpoint_example_operator_template::{NAME, assembled, definitions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().any(|argument| argument == "--crds") {
        for definition in definitions() {
            println!("---\n{}", serde_json::to_string_pretty(&definition)?);
        }
        return Ok(());
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let config = ControllerConfig::leader_elected().with_env()?;
    let manager = Manager::infer(NAME, config).await?;
    Ok(assembled(manager)?.run_until_signal().await?)
}
