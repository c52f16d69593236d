//! Runs the controller against the cluster of the current kubeconfig. It has the flags and the configuration file of
//! every setpoint manager (`--workers=2 --leader-election-leader-elect=true --config FILE`).

use anyhow::Context;
use setpoint::manager::stop_signal;
use setpoint::{Clock, ControllerConfig, Manager, Rng, Runtime};
use setpoint_example_first_controller::{NAME, runnables};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let environment = |name: &str| std::env::var(name).ok();
    let (config, rest) = ControllerConfig::default().load(std::env::args().skip(1), environment)?;
    anyhow::ensure!(rest.is_empty(), "unknown arguments {rest:?}\n{}", ControllerConfig::help());
    let cluster = kube::Config::infer().await.context("find a cluster: set KUBECONFIG")?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let mut manager = Manager::connect(NAME, cluster, runtime, config).await?;
    for runnable in runnables(&manager.context().clone()) {
        manager.add(runnable);
    }
    manager.run(stop_signal()?).await;
    Ok(())
}
