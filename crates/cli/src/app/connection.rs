//! The connection of commands to a cluster: kubectl's flags and defaults.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use setpoint::{Client, Key, Kind};

#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// Kubeconfig of the cluster [default: KUBECONFIG, or ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context to use from the kubeconfig [default: the current one].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Namespaced {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Namespace [default: that of the context].
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

/// A cluster and the namespace to work in.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) kube: kube::Client,
    pub(crate) namespace: String,
}

impl ClusterFlags {
    /// Connects, in the namespace of the context.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        self.connect_in(None).await
    }

    async fn connect_in(&self, namespace: Option<&str>) -> anyhow::Result<Connection> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match &self.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path);
                let read = read.with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(read, &options).await?
            }
            None => kube::Config::from_kubeconfig(&options)
                .await
                .context("no kubeconfig found: set --kubeconfig")?,
        };
        let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
        let kube = kube::Client::try_from(config).context("cannot connect to the API server")?;
        let client = Client::new(kube.clone()).with_user_agent("setpoint");
        Ok(Connection { client, kube, namespace })
    }
}

impl Namespaced {
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        self.cluster.connect_in(self.namespace.as_deref()).await
    }

    /// Whether a namespace was asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.namespace.is_some()
    }
}

impl Connection {
    /// Reads an object.
    pub(crate) async fn get(&self, kind: &Kind, name: &str) -> anyhow::Result<Value> {
        let key = if kind.namespaced() { Key::namespaced(&self.namespace, name) } else { Key::cluster(name) };
        let found = self.client.get(kind, &key).await;
        Ok(found.with_context(|| format!("cannot read {} {name}", kind.kind()))?.decode()?)
    }

    /// Lists objects, of all namespaces if `namespace` is none.
    pub(crate) async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<String>,
    ) -> anyhow::Result<Vec<Value>> {
        let selection = setpoint::source::Selection {
            namespace: namespace.map(str::to_owned),
            labels,
            ..Default::default()
        };
        let listed = self.client.list(kind, &selection).await;
        let listed = listed.with_context(|| format!("cannot list {}", kind.plural()))?;
        listed.objects.iter().map(|object| Ok(object.decode()?)).collect()
    }
}
