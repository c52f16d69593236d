//! The command line. Names follow kubectl and kube-controller-manager where those have an equivalent.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use setpoint_cluster::PodBackends;
use setpoint_controllers::flags::duration;
use setpoint_controllers::{AddressPool, FeatureGates};

use crate::add::Add;
use crate::apiserver::Apiserver;
use crate::apiserver_flags::admission::AdmissionFlags;
use crate::apiserver_flags::apis::ApiFlags;
use crate::apiserver_flags::audit::AuditFlags;
use crate::apiserver_flags::authentication::AuthenticationFlags;
use crate::apiserver_flags::authorization::AuthorizationFlags;
use crate::apiserver_flags::encryption::EncryptionFlags;
use crate::apiserver_flags::etcd::EtcdFlags;
use crate::apiserver_flags::limits::LimitFlags;
use crate::apiserver_flags::proxying::ProxyingFlags;
use crate::apiserver_flags::serving::ServingFlags;
use crate::apiserver_flags::snapshots::SnapshotFlags;
use crate::app::App;
use crate::application_manager::ApplicationManager;
use crate::bundle::Bundle;
use crate::certs::Certs;
use crate::cluster::Cluster;
use crate::controller_manager::connection::ConnectionFlags;
use crate::controller_manager::controller_flags::ControllerFlags;
use crate::controller_manager::fixed_flags::FixedFlags;
use crate::controller_manager::leader_election::LeaderElectionFlags;
use crate::controller_manager::network::NetworkFlags;
use crate::controller_manager::serving::Serving;
use crate::controller_manager::shadow::ShadowFlags;
use crate::controller_manager::signing::SigningFlags;
use crate::def::Def;
use crate::logging::Logging;
use crate::migrate::Migrate;
use crate::new::New;
use crate::operator::Operator;
use crate::scheduler::Scheduler;
use crate::snapshot::Snapshot;
use crate::why::Why;

/// A Kubernetes control plane in one binary.
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
    /// Run the API server alone.
    Apiserver(Box<Apiserver>),
    /// Run the scheduler against any Kubernetes API server.
    Scheduler(Box<Scheduler>),
    /// Run the controllers against any Kubernetes API server.
    ControllerManager(Box<ControllerManager>),
    /// Run the controllers of applications and resource graphs against any Kubernetes API server.
    ApplicationManager(Box<ApplicationManager>),
    /// Explain why an object has not converged.
    Why(Why),
    /// Run operators whose logic is a hook: a program in any language.
    #[command(subcommand)]
    Operator(Operator),
    /// Show, diff and control applications.
    #[command(subcommand)]
    App(App),
    /// Check, apply and show definitions of components, traits, policies and workflow steps.
    #[command(subcommand)]
    Def(Def),
    /// Register, list, rename and detach the clusters that applications are deployed to.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Write a new operator project in any language: a custom resource, a controller, tests and manifests.
    New(Box<New>),
    /// Extend an operator project.
    #[command(subcommand)]
    Add(Add),
    /// Write a bundle for the Operator Lifecycle Manager from the manifests of a project, and check it.
    #[command(disable_version_flag = true)]
    Bundle(Bundle),
    /// Fail, recover and list simulated nodes.
    #[command(subcommand)]
    Node(Node),
    /// List or renew the certificates in a data directory.
    #[command(subcommand)]
    Certs(Certs),
    /// Save, restore and check snapshots of a data directory.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Move all objects between a data directory and an etcd, with their resource versions.
    Migrate(Box<Migrate>),
    /// Print a shell completion script.
    Completion {
        /// Shell to print the script for.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands to a directory.
    #[command(hide = true)]
    Man {
        /// Directory to write them to; created if it does not exist.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// The range of node ports, as in v1.34.
pub(crate) const NODE_PORTS: (u16, u16) = (30000, 32767);

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Port of the API server; 0 picks a free one.
    #[arg(long, default_value_t = 6443, overrides_with = "port")]
    pub(crate) port: u16,
    /// Address the API server listens on.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) bind_address: std::net::IpAddr,
    /// Directory for the store and the certificates.
    #[arg(long, default_value = "setpoint-data", conflicts_with = "in_memory")]
    pub(crate) data_dir: PathBuf,
    /// Keep all state in memory; it is lost when the process exits.
    #[arg(long, conflicts_with = "etcd_servers")]
    pub(crate) in_memory: bool,
    /// Number of simulated nodes.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) nodes: usize,
    /// Number of zones the simulated nodes are spread over (zone-a, zone-b, ...).
    #[arg(long, default_value = "3", value_name = "N")]
    pub(crate) zones: std::num::NonZeroUsize,
    /// Images that simulated nodes cannot pull: patterns in which * matches any text.
    #[arg(long, value_delimiter = ',', value_name = "GLOBS")]
    pub(crate) missing_images: Vec<String>,
    /// Local processes that may serve in place of simulated pods, by the annotation node.setpoint.dev/backend [default:
    /// loopback if --bind-address is a loopback address, otherwise none].
    #[arg(long, value_enum, value_name = "BACKENDS")]
    pub(crate) pod_backends: Option<PodBackendsFlag>,
    /// File the admin kubeconfig is written to.
    #[arg(long, default_value = "setpoint.kubeconfig", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// CIDR for Service cluster IPs; two, comma-separated, for dual-stack.
    #[arg(long, default_value = "10.0.0.0/16", value_name = "CIDR")]
    pub(crate) service_cluster_ip_range: String,
    /// Admission plugins to enable in addition to the defaults, by kube-apiserver's names.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable although they are on by default.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// CIDR for Services of type LoadBalancer and for Ingresses of the class controller setpoint.dev/ingress. Unset,
    /// they get no addresses.
    #[arg(long, value_name = "CIDR", value_parser = address_pool)]
    pub(crate) load_balancer_range: Option<AddressPool>,
    /// Do not run the scheduler.
    #[arg(long)]
    pub(crate) no_scheduler: bool,
    /// Create a default StorageClass `standard` (provisioner kubernetes.io/host-path).
    #[arg(long)]
    pub(crate) default_storage_class: bool,
    /// Run applications: install the kinds and definitions of core.oam.dev and their controllers.
    #[arg(long)]
    pub(crate) applications: bool,
    /// Run the operators in this directory: apply its manifests, run its hooks, print each reconcile, and reload files
    /// that change.
    #[arg(long, value_name = "DIR")]
    pub(crate) operators: Option<PathBuf>,
    // Flattened groups come last, because their headings apply to everything after them.
    #[command(flatten)]
    pub(crate) controllers: Controllers,
    #[command(flatten)]
    pub(crate) apis: ApiFlags,
    #[command(flatten)]
    pub(crate) admission: AdmissionFlags,
    #[command(flatten)]
    pub(crate) authentication: AuthenticationFlags,
    #[command(flatten)]
    pub(crate) authorization: AuthorizationFlags,
    #[command(flatten)]
    pub(crate) audit: AuditFlags,
    #[command(flatten)]
    pub(crate) serving: ServingFlags,
    #[command(flatten)]
    pub(crate) proxying: ProxyingFlags,
    #[command(flatten)]
    pub(crate) network: NetworkFlags,
    #[command(flatten)]
    pub(crate) encryption: EncryptionFlags,
    #[command(flatten)]
    pub(crate) etcd: EtcdFlags,
    #[command(flatten)]
    pub(crate) snapshots: SnapshotFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
}

/// The values of `--pod-backends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PodBackendsFlag {
    /// Any process that listens on a loopback address, except the API server.
    Loopback,
    /// None.
    None,
}

impl Up {
    /// Returns the local processes that may stand in for pods. Others than this machine's owner can only create pods
    /// if they can reach the API server.
    pub(crate) fn pod_backends(&self) -> PodBackends {
        match self.pod_backends {
            Some(PodBackendsFlag::Loopback) => PodBackends::Loopback,
            None if self.bind_address.is_loopback() => PodBackends::Loopback,
            Some(PodBackendsFlag::None) | None => PodBackends::None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Mark nodes as failed: they stop renewing their leases and updating their pods.
    Fail(NodeNames),
    /// Bring failed nodes back.
    Recover(NodeNames),
    /// List the nodes and whether they are failed.
    List(Target),
}

#[derive(Debug, Args)]
pub(crate) struct NodeNames {
    /// Names of the nodes.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Kubeconfig of the cluster.
    #[arg(long, default_value = "setpoint.kubeconfig", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerManager {
    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
    #[command(flatten)]
    pub(crate) leader_election: LeaderElectionFlags,
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) keys: SigningFlags,
    #[command(flatten)]
    pub(crate) network: NetworkFlags,
    /// CIDR of the cluster's Services; excluded from node CIDRs.
    #[arg(
        long,
        default_value = "",
        value_name = "CIDR",
        hide_default_value = true,
        help_heading = "Network"
    )]
    pub(crate) service_cluster_ip_range: String,
    #[command(flatten)]
    pub(crate) generic: GenericFlags,
    #[command(flatten)]
    pub(crate) shadow: ShadowFlags,
    #[command(flatten)]
    pub(crate) fixed: FixedFlags,
    #[command(flatten)]
    pub(crate) controllers: Controllers,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "General")]
pub(crate) struct GenericFlags {
    /// Minimum resync period of the informers; the actual period is between this and twice this.
    #[arg(long, default_value = "12h", value_name = "DURATION", value_parser = duration)]
    pub(crate) min_resync_period: Duration,
    /// Delay between starting two controllers.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub(crate) controller_start_interval: Duration,
    /// Serve CPU and heap profiles below /debug/pprof on the secure port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) profiling: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Controllers")]
pub(crate) struct Controllers {
    /// Controllers to run: '*' for all that are on by default, 'foo' to enable foo, '-foo' to disable it.
    #[arg(long = "controllers", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) selection: Vec<String>,
    /// Feature gates, as Name=true,Other=false.
    #[arg(long, default_value = "", value_name = "GATES", hide_default_value = true)]
    pub(crate) feature_gates: FeatureGates,
    #[command(flatten)]
    pub(crate) flags: ControllerFlags,
}

impl Controllers {
    /// Prints warnings about the gates that were set.
    pub(crate) fn warn_of_gates(&self) {
        for warning in self.feature_gates.warnings() {
            eprintln!("{warning}");
        }
    }
}

fn address_pool(text: &str) -> Result<AddressPool, String> {
    AddressPool::parse(text).ok_or_else(|| "expected a CIDR such as 192.0.2.0/24".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// One name per line.
    const KNOWN: &str = include_str!("controller_manager/known_flags.txt");

    #[test]
    fn local_pod_backends_require_a_loopback_listener() {
        let backends = |flags: &[&str]| {
            let arguments = Arguments::parse_from(["setpoint", "up"].iter().chain(flags));
            let Command::Up(up) = arguments.command else { panic!("another command") };
            up.pod_backends()
        };
        assert_eq!(backends(&[]), PodBackends::Loopback);
        assert_eq!(backends(&["--bind-address=::1"]), PodBackends::Loopback);
        assert_eq!(backends(&["--bind-address=0.0.0.0"]), PodBackends::None);
        assert_eq!(backends(&["--bind-address=192.0.2.1"]), PodBackends::None);
        assert_eq!(backends(&["--pod-backends=none"]), PodBackends::None);
        let asked = backends(&["--bind-address=0.0.0.0", "--pod-backends=loopback"]);
        assert_eq!(asked, PodBackends::Loopback);
    }

    /// Returns the arguments of a manifest's only container.
    fn container_arguments(manifest: &str) -> Vec<String> {
        let pod: serde_json::Value = serde_saphyr::from_str(manifest).expect("a manifest");
        let arguments = pod["spec"]["containers"][0]["args"].as_array().expect("a list").iter();
        arguments.map(|argument| argument.as_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn the_files_in_deploy_use_flags_that_exist() {
        let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        let mut checked = 0;
        for directory in ["systemd", "static-pods"] {
            let entries = std::fs::read_dir(deploy.join(directory)).expect("a directory");
            for path in entries.flatten().map(|entry| entry.path()) {
                let text = std::fs::read_to_string(&path).expect("a file");
                let arguments: Vec<String> = match path.extension().and_then(|extension| extension.to_str()) {
                    Some("service") => {
                        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart="));
                        let start = start.expect("a command").replace("${ADVERTISE_ADDRESS}", "192.0.2.1");
                        start.split_whitespace().skip(1).map(str::to_owned).collect()
                    }
                    Some("yaml") => container_arguments(&text),
                    _ => continue,
                };
                let arguments = std::iter::once("setpoint".to_owned()).chain(arguments);
                let parsed = Arguments::try_parse_from(arguments);
                assert!(parsed.is_ok(), "{}: {}", path.display(), parsed.unwrap_err());
                checked += 1;
            }
        }
        assert_eq!(checked, 6);
    }

    #[test]
    fn every_flag_of_v1_34_is_accepted() {
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
