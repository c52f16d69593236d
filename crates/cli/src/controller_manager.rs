//! `setpoint controller-manager`: the built-in controllers against any Kubernetes API server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint::source::KubeSource;
use setpoint::{Client, Clock, Manager, Rng, Runtime};
use setpoint_controllers::{Options, TokenSigner, selected};

use crate::args::ControllerManager;
use crate::up::stop_signal;

pub(crate) async fn run(arguments: ControllerManager) -> anyhow::Result<()> {
    let controllers = selected(&arguments.controllers.selection).context("--controllers")?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let config = config(&arguments).await?;
    let options = options(&arguments, &config)?;
    let kube = kube::Client::try_from(config).context("cannot connect to the API server")?;
    let version = kube.apiserver_version().await.context("cannot reach the API server")?;
    let source = Arc::new(KubeSource::new(kube.clone(), runtime.clone()));
    let mut manager = Manager::new(Client::new(kube), source, runtime);
    let context = manager.context().clone();
    for runnable in controllers.iter().flat_map(|entry| (entry.build)(&context, &options)) {
        manager.add(runnable);
    }
    eprintln!("setpoint runs {} controllers against Kubernetes {}", controllers.len(), version.git_version);
    manager.run(stop_signal()?).await;
    Ok(())
}

async fn config(arguments: &ControllerManager) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    let Some(path) = &arguments.kubeconfig else {
        return kube::Config::infer().await.context("no kubeconfig found: name one with --kubeconfig");
    };
    let read = Kubeconfig::read_from(path);
    let kubeconfig = read.with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

fn options(arguments: &ControllerManager, config: &kube::Config) -> anyhow::Result<Options> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let root_ca = match &arguments.root_ca_file {
        Some(path) => Some(read(path)?),
        None => config.root_cert.as_ref().map(|certificates| pem(certificates)),
    };
    let token_key = arguments.service_account_private_key_file.as_ref().map(read).transpose()?;
    let token_signer = token_key.map(|key| TokenSigner::from_pem(&key)).transpose();
    Ok(Options {
        terminated_pod_threshold: arguments.terminated_pod_gc_threshold,
        root_ca,
        token_signer: token_signer.context("--service-account-private-key-file")?,
        ..Options::default()
    })
}

/// Certificates as files carry them.
fn pem(certificates: &[Vec<u8>]) -> String {
    let block = |der: &Vec<u8>| {
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    certificates.iter().map(block).collect()
}
