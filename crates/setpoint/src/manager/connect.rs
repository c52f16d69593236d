//! Builds a manager from a configuration: client limits, source, leader election and the HTTP endpoints.

use std::net::SocketAddr;
use std::sync::Arc;

#[cfg(feature = "serve")]
use futures::future::BoxFuture;
#[cfg(feature = "serve")]
use tokio::net::TcpListener;
#[cfg(feature = "serve")]
use tokio_util::sync::CancellationToken;

use super::{Manager, stop_signal};
#[cfg(feature = "serve")]
use crate::Runnable;
use crate::adaptive::AdaptiveLimits;
use crate::config::{ConfigError, ControllerConfig};
use crate::leader::{ElectionConfig, ExitReason, InvalidElectionConfig};
use crate::metrics::Metrics;
#[cfg(feature = "serve")]
use crate::serve::Operations;
use crate::shard::ShardingOptions;
use crate::source::KubeSource;
use crate::{Client, Runtime};

/// An error from [`Manager::from_env`], [`Manager::connect`] or [`Manager::configured`].
///
/// ```
/// fn explain(error: &setpoint::manager::ConnectError) -> String {
///     error.to_string()
/// }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The flags, the environment or the configuration file are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is neither a kubeconfig file nor a service account.
    #[error("no cluster configured: set KUBECONFIG, or run in a pod")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The client could not be created.
    #[error("cannot create a client for the cluster")]
    Client(#[source] Box<kube::Error>),
    /// The leader election settings are invalid.
    #[error(transparent)]
    Election(#[from] InvalidElectionConfig),
    /// Listening on the address failed.
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What is served there.
        purpose: &'static str,
        /// The underlying I/O error.
        #[source]
        source: std::io::Error,
    },
    /// A bind address is configured, but the program is built without the HTTP server.
    #[error("bindAddress is {address}, but this program is built without the feature serve")]
    CannotServe {
        /// The address.
        address: SocketAddr,
    },
}

/// An error from [`Manager::run_until_signal`].
///
/// ```
/// use setpoint::manager::RunError;
/// assert_eq!(RunError::LeaseLost.to_string(), "lost the lease: another replica has taken over");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The lease could not be renewed, so another replica may be active by now. The process should exit and restart.
    #[error("lost the lease: another replica has taken over")]
    LeaseLost,
    /// The signal handlers could not be installed.
    #[error("cannot listen for SIGTERM and SIGINT")]
    Signals(#[from] std::io::Error),
}

impl Manager {
    /// Creates a manager called `name` for the cluster in the current kubeconfig, or the cluster it runs in. Reads the
    /// configuration from the `--config` file, the environment and flags.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let manager = setpoint::Manager::from_env("my-operator").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "config")]
    pub async fn from_env(name: &'static str) -> Result<Self, ConnectError> {
        Self::infer(name, ControllerConfig::default().with_env()?).await
    }

    /// Creates a manager called `name` for the cluster in the current kubeconfig, or the cluster it runs in.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use setpoint::{ControllerConfig, Manager};
    /// let config = ControllerConfig::leader_elected().with_env()?;
    /// let manager = Manager::infer("my-operator", config).await?;
    /// # Ok(()) }
    /// ```
    pub async fn infer(name: &'static str, config: ControllerConfig) -> Result<Self, ConnectError> {
        let cluster = kube::Config::infer().await.map_err(|error| ConnectError::Infer(Box::new(error)))?;
        Self::connect(name, cluster, Runtime::system(), config).await
    }

    /// Runs until SIGTERM or SIGINT, then shuts down in order. A second signal exits immediately.
    pub async fn run_until_signal(self) -> Result<(), RunError> {
        match self.run(stop_signal()?).await {
            ExitReason::Stopped => Ok(()),
            ExitReason::Lost => Err(RunError::LeaseLost),
        }
    }

    /// Creates a manager called `name` for a cluster, set up according to `config`: client rate limits, caches, leader
    /// election, and the HTTP endpoints at the bind address.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use setpoint::{ControllerConfig, Manager, Runtime};
    /// let cluster = kube::Config::infer().await?;
    /// let config = ControllerConfig { workers: 2, ..ControllerConfig::default() };
    /// let manager = Manager::connect("my-operator", cluster, Runtime::system(), config).await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(
        name: &'static str,
        cluster: kube::Config,
        runtime: Runtime,
        config: ControllerConfig,
    ) -> Result<Self, ConnectError> {
        let host = cluster.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let kube = kube::Client::try_from(cluster).map_err(|error| ConnectError::Client(Box::new(error)))?;
        Self::configured(name, kube, &host, runtime, config).await
    }

    /// Like [`connect`](Self::connect), but with an existing client. `host` is the `host` label of its request metrics.
    pub async fn configured(
        name: &'static str,
        kube: kube::Client,
        host: &str,
        runtime: Runtime,
        config: ControllerConfig,
    ) -> Result<Self, ConnectError> {
        let (clock, metrics) = (&runtime.clock, Metrics::new());
        let base = Client::new(kube).with_user_agent(name).with_metrics(clock, &metrics, host);
        // Lists and watches bypass the rate limiter: they are few, and everything else waits for them.
        let source =
            KubeSource::new(base.clone().with_timeout(config.informer_config.list_timeout), runtime.clone());
        let source = if config.informer_config.incremental_sync { source } else { source.paged() };
        let (rate, burst) = (config.client_qps, config.client_burst);
        let adaptive = config.adaptive.then(|| AdaptiveLimits::new(clock, rate, burst));
        let mut client = match &adaptive {
            Some(adaptive) => base.with_adaptive_limits(clock, adaptive),
            None => base.with_rate_limit(clock, rate, burst),
        };
        if let Some(most) = config.client_connections {
            client = client.with_connections(most);
        }
        let mut manager =
            Self::assemble(client, Arc::new(source), runtime, metrics, config.clone(), adaptive);
        manager.context = manager.context.named(name);
        manager.context.informers.list_within(config.informer_config.list_timeout);
        if cfg!(not(feature = "otel")) && config.tracing.endpoint.is_some() {
            tracing::warn!("tracing.endpoint is set, but this program is built without the feature otel");
        }
        if config.leader_election.leader_elect {
            let identity = ElectionConfig::own_identity(&manager.context.runtime.rng);
            manager.elect(config.election(name, &identity), name)?;
        }
        if let Some(shards) = config.sharding.shards {
            let identity = ElectionConfig::own_identity(&manager.context.runtime.rng);
            let (election, by) = (config.election(name, &identity), config.sharding.by);
            manager.shard(ShardingOptions { election, shards, by })?;
        }
        if let Some(address) = config.bind_address {
            manager.serve_at(address).await?;
        }
        Ok(manager)
    }

    #[cfg(feature = "serve")]
    async fn serve_at(&mut self, address: SocketAddr) -> Result<(), ConnectError> {
        let bound = TcpListener::bind(address).await;
        let purpose = "health, metrics and profiles (bindAddress)";
        let listener = bound.map_err(|source| ConnectError::Listen { address, purpose, source })?;
        let operations = Operations::of(&self.context);
        self.add(Serving { operations, listener });
        Ok(())
    }

    #[cfg(not(feature = "serve"))]
    async fn serve_at(&mut self, address: SocketAddr) -> Result<(), ConnectError> {
        Err(ConnectError::CannotServe { address })
    }
}

/// A runnable that serves health checks, metrics and profiles, in every replica.
#[cfg(feature = "serve")]
struct Serving {
    operations: Operations,
    listener: TcpListener,
}

#[cfg(feature = "serve")]
impl Runnable for Serving {
    fn name(&self) -> &str {
        "operations"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.operations.serve(self.listener, stop))
    }

    fn needs_leader(&self) -> bool {
        false
    }
}
