//! The connection to the API server.

use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgAction, Args};
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint::metrics::Metrics;
use setpoint::{Client, Clock};

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
        self.config_of(self.kubeconfig.as_ref()).await
    }

    /// Returns the client configuration of another kubeconfig.
    pub(crate) async fn config_of(&self, kubeconfig: Option<&PathBuf>) -> anyhow::Result<kube::Config> {
        let mut config = match kubeconfig {
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

/// Creates a client with a user agent and limits: requests per second, unless they are not positive, and their burst.
pub(crate) fn limited(
    kube: kube::Client,
    config: &kube::Config,
    user_agent: &'static str,
    (qps, burst): (f64, u32),
    clock: &Clock,
    metrics: &Metrics,
) -> Client {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let client = Client::new(kube).with_user_agent(user_agent).with_metrics(clock, metrics, &host);
    if qps > 0.0 { client.with_rate_limit(clock, qps, burst) } else { client }
}

/// Loads a kubeconfig.
pub(crate) async fn from_file(path: &PathBuf, context: Option<String>) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let read = Kubeconfig::read_from(path);
    let kubeconfig = read.with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}
