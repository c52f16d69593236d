//! What `setpoint operator run` and `setpoint application-manager` have in common: the connection, leader election, the
//! address for health checks, and the manager's configuration.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use setpoint::config::LeaderElectionConfig;
use setpoint::leader::ExitReason;
use setpoint::{Client, ControllerConfig};
use setpoint_webhook::Cidr;

use crate::controller_manager::connection::ConnectionFlags;
use crate::controller_manager::leader_election::ElectionTimes;

/// The flags. Commands change the defaults of `bind_address` and `leader_elect_resource_namespace`.
#[derive(Debug, Args)]
pub(crate) struct ManagerFlags {
    #[command(flatten)]
    connection: ConnectionFlags,
    #[command(flatten)]
    election: ElectionFlags,
    /// Address for health checks, metrics and profiles, over plain HTTP; empty disables it.
    #[arg(long, default_value = "", value_name = "ADDRESS", help_heading = "Serving")]
    bind_address: Listen,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Replicas")]
struct ElectionFlags {
    /// Run only while holding the leader election lease [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set,
        value_name = "BOOL")]
    leader_elect: Option<bool>,
    #[command(flatten)]
    times: ElectionTimes,
    /// Namespace of the lease.
    #[arg(long, default_value = "default", value_name = "NAMESPACE")]
    leader_elect_resource_namespace: String,
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
struct Listen(Option<SocketAddr>);

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self(None)),
            text => match text.parse() {
                Ok(address) => Ok(Self(Some(address))),
                Err(_) => Err("expected an address and a port, such as 127.0.0.1:8086"),
            },
        }
    }
}

/// A connection to the API server.
pub(crate) struct Connection {
    pub(crate) config: kube::Config,
    pub(crate) client: Client,
    /// The version of the API server.
    pub(crate) version: String,
}

impl ManagerFlags {
    /// Returns the configuration of the manager, whose lease is called `name`. `elects` is the default of --leader-elect.
    pub(crate) fn config(&self, name: &str, elects: bool) -> ControllerConfig {
        let election = &self.election;
        ControllerConfig {
            client_qps: self.connection.kube_api_qps,
            client_burst: self.connection.kube_api_burst,
            queue_size: None,
            bind_address: self.bind_address.0,
            leader_election: LeaderElectionConfig {
                leader_elect: election.leader_elect.unwrap_or(elects),
                lease_duration: election.times.leader_elect_lease_duration,
                renew_deadline: election.times.leader_elect_renew_deadline,
                retry_period: election.times.leader_elect_retry_period,
                resource_name: Some(name.to_owned()),
                resource_namespace: election.leader_elect_resource_namespace.clone(),
                release_on_exit: true,
            },
            ..ControllerConfig::default()
        }
    }

    /// Connects to the API server as `user_agent`.
    pub(crate) async fn connect(&self, user_agent: &'static str) -> anyhow::Result<Connection> {
        if self.connection.use_service_account_credentials {
            bail!("--use-service-account-credentials: supported only by setpoint controller-manager");
        }
        let config = self.connection.config().await?;
        let kube = kube::Client::try_from(config.clone()).context("cannot connect to the API server")?;
        let version = kube.apiserver_version().await.context("cannot reach the API server")?;
        let client = Client::new(kube).with_user_agent(user_agent);
        Ok(Connection { config, client, version: version.git_version })
    }
}

/// Returns what the end of a manager means for the command.
pub(crate) fn ended(reason: ExitReason) -> anyhow::Result<()> {
    match reason {
        ExitReason::Stopped => Ok(()),
        ExitReason::Lost => bail!("lost the leader election lease"),
    }
}

/// Parses the values of a flag that denies addresses. An empty one denies none.
pub(crate) fn denied(flag: &'static str, cidrs: &[String]) -> anyhow::Result<Vec<Cidr>> {
    let cidrs = cidrs.iter().filter(|cidr| !cidr.is_empty());
    cidrs.map(|cidr| cidr.parse()).collect::<Result<_, _>>().context(flag)
}
