//! The connection to the API server.

use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgAction, Args};
use kube::config::{KubeConfigOptions, Kubeconfig};

#[derive(Debug, Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct ConnectionFlags {
    /// Kubeconfig of the cluster [default: KUBECONFIG, ~/.kube/config, or the pod's service account].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context to use from the kubeconfig.
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// Address of the API server; overrides the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
    /// Requests per second to the API server.
    #[arg(long, default_value_t = 20.0, value_name = "N")]
    pub(crate) kube_api_qps: f64,
    /// Burst of requests to the API server.
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub(crate) kube_api_burst: u32,
    /// Content type of requests. Accepted for compatibility; requests are always JSON.
    #[arg(long, default_value = "application/json", value_name = "TYPE", value_parser = content_type)]
    pub(crate) kube_api_content_type: String,
    /// Run each controller with the credentials of its own service account.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) use_service_account_credentials: bool,
}

fn content_type(text: &str) -> Result<String, String> {
    match text {
        "application/json" | "application/vnd.kubernetes.protobuf" => Ok(text.to_owned()),
        _ => Err("expected application/json or application/vnd.kubernetes.protobuf".into()),
    }
}

impl ConnectionFlags {
    /// Returns the client configuration.
    pub(crate) async fn config(&self) -> anyhow::Result<kube::Config> {
        let mut config = match &self.kubeconfig {
            Some(path) => from_file(path, self.context.clone()).await?,
            None => kube::Config::infer().await.context("no kubeconfig found: set --kubeconfig")?,
        };
        if let Some(master) = &self.master {
            config.cluster_url =
                master.parse().with_context(|| format!("--master {master}: expected a URL"))?;
        }
        Ok(config)
    }
}

/// Loads a kubeconfig.
pub(crate) async fn from_file(path: &PathBuf, context: Option<String>) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let read = Kubeconfig::read_from(path);
    let kubeconfig = read.with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}
