//! Runs the operator against the cluster of the current kubeconfig. `--crd` prints its definition instead:
//!
//! ```console
//! $ cargo run -p setpoint-example-application -- --crd | kubectl apply -f -
//! $ cargo run -p setpoint-example-application
//! ```

use std::sync::Arc;

use anyhow::Context;
use setpoint::source::KubeSource;
use setpoint::{Client, Clock, Manager, Rng, Runtime};
use setpoint_example_application::{CONTROLLER, definition, runnables};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().any(|argument| argument == "--crd") {
        println!("{}", serde_json::to_string_pretty(&definition())?);
        return Ok(());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let config = kube::Config::infer().await.context("find a cluster: set KUBECONFIG")?;
    let kube = kube::Client::try_from(config).context("connect to the cluster")?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let source = Arc::new(KubeSource::new(Client::new(kube.clone()), runtime.clone()));
    let mut manager = Manager::new(Client::new(kube).with_user_agent(CONTROLLER), source, runtime);
    for runnable in runnables(&manager.context().clone()) {
        manager.add(runnable);
    }
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopping.cancel();
        }
    });
    manager.run(stop).await;
    Ok(())
}
