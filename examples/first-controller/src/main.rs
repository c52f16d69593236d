//! Runs the controller against the cluster of the current kubeconfig. It has the flags and the configuration file of
//! every setpoint manager (`--workers=2 --leader-election-leader-elect=true --config FILE`).

use setpoint::Manager;
use setpoint_example_first_controller::greeter;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    Ok(Manager::from_env("greeter").await?.with(greeter).run_until_signal().await?)
}
