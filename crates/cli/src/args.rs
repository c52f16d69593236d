//! The command line. Names follow kubectl's and kube-controller-manager's where they have one.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use setpoint_controllers::flags::duration;
use setpoint_controllers::{AddressPool, FeatureGates};

use crate::apiserver_flags::apis::ApiFlags;
use crate::apiserver_flags::audit::AuditFlags;
use crate::apiserver_flags::authentication::AuthenticationFlags;
use crate::apiserver_flags::authorization::AuthorizationFlags;
use crate::apiserver_flags::encryption::EncryptionFlags;
use crate::apiserver_flags::limits::LimitFlags;
use crate::apiserver_flags::serving::ServingFlags;
use crate::certs::Certs;
use crate::controller_manager::connection::Connection;
use crate::controller_manager::controller_flags::ControllerFlags;
use crate::controller_manager::leading::Leading;
use crate::controller_manager::network::Network;
use crate::controller_manager::serving::Serving;
use crate::controller_manager::settled::SettledFlags;
use crate::controller_manager::signing::Keys;
use crate::logging::Logging;

/// The Kubernetes controller system in one binary.
#[derive(Debug, Parser)]
#[command(name = "setpoint", version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole control plane: API server, store, controllers, scheduler and simulated nodes.
    Up(Box<Up>),
    /// Run the controllers against any Kubernetes API server.
    ControllerManager(Box<ControllerManager>),
    /// Write a new operator that builds, has tests and runs.
    New(New),
    /// Let simulated nodes fail and recover.
    #[command(subcommand)]
    Node(Node),
    /// List the certificates of a data directory, or make them anew.
    #[command(subcommand)]
    Certs(Certs),
    /// Print a completion script for a shell.
    Completion { shell: clap_complete::Shell },
    /// Write the manual pages of all commands to a directory.
    #[command(hide = true)]
    Man {
        /// Where to write them; made if it does not exist.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The port the API server listens on; 0 picks a free one.
    #[arg(long, default_value_t = 6443, overrides_with = "port")]
    pub(crate) port: u16,
    /// The address the API server listens on.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) bind_address: std::net::IpAddr,
    /// Where the state is kept.
    #[arg(long, default_value = "setpoint-data", conflicts_with = "in_memory")]
    pub(crate) data_dir: PathBuf,
    /// Keep nothing: the state is gone when the process ends.
    #[arg(long)]
    pub(crate) in_memory: bool,
    /// How many simulated nodes there are.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) nodes: usize,
    /// How many zones the simulated nodes are spread over, one after the other.
    #[arg(long, default_value = "3", value_name = "N")]
    pub(crate) zones: std::num::NonZeroUsize,
    /// Where the kubeconfig is written.
    #[arg(long, default_value = "setpoint.kubeconfig", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    #[command(flatten)]
    pub(crate) controllers: Controllers,
    #[command(flatten)]
    pub(crate) apis: ApiFlags,
    #[command(flatten)]
    pub(crate) authentication: AuthenticationFlags,
    #[command(flatten)]
    pub(crate) authorization: AuthorizationFlags,
    /// The range that Services get their addresses from, or one of each IP family with a comma between them.
    #[arg(long, default_value = "10.0.0.0/16", value_name = "CIDR")]
    pub(crate) service_cluster_ip_range: String,
    /// Admission plugins that are on besides the default ones, by kube-apiserver's names for them.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Default admission plugins that are off, by kube-apiserver's names for them.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// The addresses of services of type LoadBalancer and of ingresses of the controller setpoint.dev/ingress; none
    /// are given without it.
    #[arg(long, value_name = "CIDR", value_parser = address_pool)]
    pub(crate) load_balancer_range: Option<AddressPool>,
    #[command(flatten)]
    pub(crate) audit: AuditFlags,
    #[command(flatten)]
    pub(crate) serving: ServingFlags,
    #[command(flatten)]
    pub(crate) network: Network,
    #[command(flatten)]
    pub(crate) encryption: EncryptionFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    /// Leave pods unscheduled.
    #[arg(long)]
    pub(crate) no_scheduler: bool,
    /// Make a StorageClass `standard` of host paths, for claims that name no class.
    #[arg(long)]
    pub(crate) default_storage_class: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Let nodes fail: they renew no lease, and their pods are left as they are.
    Fail(NodeNames),
    /// Let nodes that fail recover.
    Recover(NodeNames),
    /// List the nodes, and which of them fail.
    List(Target),
}

#[derive(Debug, Args)]
pub(crate) struct NodeNames {
    /// The names of the nodes.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The kubeconfig of the cluster.
    #[arg(long, default_value = "setpoint.kubeconfig", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerManager {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) leading: Leading,
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) keys: Keys,
    #[command(flatten)]
    pub(crate) network: Network,
    /// The range of the cluster's services, which no node is given.
    #[arg(
        long,
        default_value = "",
        value_name = "CIDR",
        hide_default_value = true,
        help_heading = "Network"
    )]
    pub(crate) service_cluster_ip_range: String,
    #[command(flatten)]
    pub(crate) generic: Generic,
    #[command(flatten)]
    pub(crate) settled: SettledFlags,
    #[command(flatten)]
    pub(crate) controllers: Controllers,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// The name of the project, such as database-operator.
    pub(crate) name: String,
    /// The kind that it operates; without it made from the name.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// The API group of the kind.
    #[arg(long, default_value = "example.com")]
    pub(crate) group: String,
    /// Where to write it; without it a directory of the project's name.
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// The checkout of setpoint that the project is built with; without it the one that this binary is from.
    #[arg(long, value_name = "DIR")]
    pub(crate) setpoint_path: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Generic {
    /// After how long every object is looked at again, at least; at most twice as long.
    #[arg(long, default_value = "12h", value_name = "DURATION", value_parser = duration)]
    pub(crate) min_resync_period: Duration,
    /// How long to wait between the starts of two controllers.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub(crate) controller_start_interval: Duration,
    /// Serve profiles of CPU and memory on the secure port, below /debug/pprof.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) profiling: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Controllers {
    /// The controllers to run: '*' for all that are on by default, 'foo' for foo, '-foo' to leave it out.
    #[arg(long = "controllers", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) selection: Vec<String>,
    /// Feature gates: Name=true,Other=false.
    #[arg(long, default_value = "", value_name = "GATES", hide_default_value = true)]
    pub(crate) feature_gates: FeatureGates,
    #[command(flatten)]
    pub(crate) flags: ControllerFlags,
}

impl Controllers {
    /// Says what there is to say about the gates that were set.
    pub(crate) fn warn_of_gates(&self) {
        for warning in self.feature_gates.warnings() {
            eprintln!("{warning}");
        }
    }
}

fn address_pool(text: &str) -> Result<AddressPool, String> {
    AddressPool::parse(text).ok_or_else(|| "expected a range of addresses such as 192.0.2.0/24".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// One name a line.
    const KNOWN: &str = include_str!("controller_manager/known_flags.txt");

    #[test]
    fn every_flag_of_v1_34_is_known() {
        let mut command = Arguments::command();
        command.build();
        let manager = command.find_subcommand("controller-manager").expect("a command");
        let known = |name: &str| {
            manager.get_arguments().any(|argument| {
                let other = argument.get_all_aliases().unwrap_or_default();
                argument.get_long() == Some(name) || other.contains(&name)
            })
        };
        let names = KNOWN.lines().filter(|line| !line.starts_with('#'));
        let unknown: Vec<_> = names.filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "not known: {unknown:?}");
    }
}
