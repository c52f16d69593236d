//! The command line. Names follow kubectl's and kube-controller-manager's where they have one.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use setpoint_controllers::Options;

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
    Up(Up),
    /// Run the controllers against any Kubernetes API server.
    ControllerManager(ControllerManager),
    /// Write a new operator that builds, has tests and runs.
    New(New),
    /// Let simulated nodes fail and recover.
    #[command(subcommand)]
    Node(Node),
    /// Print a completion script for a shell.
    Completion { shell: clap_complete::Shell },
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
    /// Where the kubeconfig is written.
    #[arg(long, default_value = "setpoint.kubeconfig", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    #[command(flatten)]
    pub(crate) controllers: Controllers,
    /// A file of bearer tokens: lines of token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// The range that Services get their addresses from, or one of each IP family with a comma between them.
    #[arg(long, default_value = "10.0.0.0/16", value_name = "CIDR")]
    pub(crate) service_cluster_ip_range: String,
    /// Admission plugins that are on besides the default ones, by kube-apiserver's names for them.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Default admission plugins that are off, by kube-apiserver's names for them.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    pub(crate) disable_admission_plugins: Vec<String>,
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
    /// The kubeconfig of the cluster; without it the usual places are searched.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The certificate to publish in every namespace; without it that of the kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// The key that signs tokens of service accounts; without it none are made.
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_private_key_file: Option<PathBuf>,
    /// How many pods that have ended may stay before the oldest are deleted; 0: all.
    #[arg(long, default_value_t = Options::default().terminated_pod_threshold, value_name = "N")]
    pub(crate) terminated_pod_gc_threshold: usize,
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
pub(crate) struct Controllers {
    /// The controllers to run: '*' for all that are on by default, 'foo' for foo, '-foo' to leave it out.
    #[arg(long = "controllers", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) selection: Vec<String>,
}
