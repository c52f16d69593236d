//! `setpoint controller-manager`: the built-in controllers against any Kubernetes API server.

use std::sync::Arc;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint::source::KubeSource;
use setpoint::{Client, Clock, Manager, Rng, Runtime};
use setpoint_controllers::{Options, selected};

use crate::args::ControllerManager;
use crate::up::stop_signal;

pub(crate) async fn run(arguments: ControllerManager) -> anyhow::Result<()> {
    let controllers = selected(&arguments.controllers.selection).context("--controllers")?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let kube = connect(&arguments).await?;
    let version = kube.apiserver_version().await.context("cannot reach the API server")?;
    let source = Arc::new(KubeSource::new(kube.clone(), runtime.clone()));
    let mut manager = Manager::new(Client::new(kube), source, runtime);
    let context = manager.context().clone();
    for runnable in controllers.iter().flat_map(|entry| (entry.build)(&context, &Options::default())) {
        manager.add(runnable);
    }
    eprintln!("setpoint runs {} controllers against Kubernetes {}", controllers.len(), version.git_version);
    manager.run(stop_signal()?).await;
    Ok(())
}

async fn connect(arguments: &ControllerManager) -> anyhow::Result<kube::Client> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    let config = match &arguments.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path);
            let kubeconfig =
                read.with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?
        }
        None => kube::Config::infer().await.context("no kubeconfig found: name one with --kubeconfig")?,
    };
    kube::Client::try_from(config).context("cannot connect to the API server")
}
