//! `setpoint operator run`: runs operators whose logic is a hook, a chart, a role or a playbook, against any Kubernetes
//! API server.
//!
//! Only the flags and the directory are handled here; the rest is the framework's manager and `setpoint-hooks`.

mod directory;
mod manifests;
mod reload;
mod show;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, Args, Subcommand, ValueEnum};
use setpoint::{Client, Clock, ControllerConfig, LabelSelector, Manager, Runtime};
use setpoint_cluster::Build;
use setpoint_controllers::flags::duration;
use setpoint_hooks::{
    AnsibleOptions, AnsibleProgram, ApplyMode, Commands, HelmOptions, HelmProgram, Network, Options,
    WatchOptions, Watches,
};
use setpoint_webhook::{Cidr, Dial, GuardedTcp};

use crate::manager_flags::{Connection, ManagerFlags, denied, ended};
use crate::up::stop_signal;
use directory::Directory;
use manifests::Namespace;
use reload::Reloading;
use show::Shown;

/// The name of the lease, the user agent of requests, and the field manager of manifests.
const NAME: &str = "setpoint-operator";
/// The default namespace of manifests, in the control plane of this process.
const NAMESPACE: &str = "default";

const ELECTS: &str = "Run only while holding the leader election lease [default: true, but false with --dev]";

#[derive(Debug, Subcommand)]
pub(crate) enum Operator {
    /// Apply a directory of manifests and run its CompositeControllers and DecoratorControllers, and the charts, roles
    /// and playbooks of its watches.yaml.
    Run(Box<Run>),
}

#[derive(Debug, Args)]
#[command(mut_args(with_own_defaults))]
pub(crate) struct Run {
    /// Directory with manifests and, for hooks that are child processes, a file of kind Operator.
    #[arg(long = "filename", short = 'f', value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Develop: apply files when they change, restart changed commands, and print each reconcile with what it wrote.
    #[arg(long)]
    dev: bool,
    #[command(flatten)]
    manager: ManagerFlags,
    #[command(flatten)]
    hooks: HookFlags,
    /// Install the kinds of metacontroller.k8s.io on startup, or bring them up to date.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    install: bool,
    #[command(flatten)]
    programs: ProgramFlags,
}

/// Changes what this command has in common with others.
fn with_own_defaults(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "bind_address" => arg.default_value("127.0.0.1:8086"),
        "leader_elect" => arg.help(ELECTS),
        "use_service_account_credentials" => arg.hide(true),
        _ => arg,
    }
}

/// How hooks are called and children written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Hooks")]
struct HookFlags {
    /// Addresses of hosts, such as hook.shop=127.0.0.1:8080, for hooks that do not run at the host in their URL.
    #[arg(long, value_delimiter = ',', value_name = "HOST=ADDRESS", value_parser = address)]
    resolve: Vec<(String, String)>,
    /// CIDRs in which hooks are not called, even if a name resolves to them. Empty allows every address.
    #[arg(long, value_delimiter = ',', value_name = "CIDRS",
        default_values_t = Cidr::link_local().iter().map(Cidr::to_string))]
    hook_denied_cidrs: Vec<String>,
    /// How children are written, unless the annotation hooks.setpoint.dev/apply-strategy of a controller says otherwise.
    #[arg(long, default_value = "dynamic-apply", value_name = "STRATEGY")]
    apply_strategy: ApplyStrategy,
    /// Field manager of server-side applies.
    #[arg(long, default_value = "metacontroller", value_name = "NAME")]
    apply_strategy_ssa_field_manager: String,
    /// Number of parents of each controller that are reconciled concurrently.
    #[arg(long, default_value_t = 5, value_name = "N")]
    workers: usize,
    /// Run only CompositeControllers and DecoratorControllers with these labels, such as team=shop. Empty runs all.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "SELECTOR")]
    target_label_selector: LabelSelector,
}

/// How charts, roles and playbooks are run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Charts and playbooks")]
struct ProgramFlags {
    /// Program that renders and owns releases: helm 3 or 4.
    #[arg(long, default_value = "helm", value_name = "PROGRAM")]
    helm: PathBuf,
    /// Number of helm processes that run at the same time.
    #[arg(long, default_value_t = 4, value_name = "N")]
    helm_processes: usize,
    /// How long helm waits for hooks of charts.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    helm_timeout: Duration,
    /// Do not show the values that watches.yaml overrides in events.
    #[arg(long)]
    suppress_override_values: bool,
    /// How often releases are checked although nothing has changed, unless watches.yaml says otherwise.
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    reconcile_period: Duration,
    /// Program that runs playbooks.
    #[arg(long, default_value = "ansible-playbook", value_name = "PROGRAM")]
    ansible_playbook: PathBuf,
    /// Number of playbooks that run at the same time.
    #[arg(long, default_value_t = 4, value_name = "N")]
    ansible_processes: usize,
    /// How long a playbook may run.
    #[arg(long, default_value = "30m", value_name = "DURATION", value_parser = duration)]
    ansible_timeout: Duration,
}

impl ProgramFlags {
    fn options(&self, watches: &Watches, clock: &Clock) -> WatchOptions {
        let helm = HelmOptions {
            program: self.helm.clone(),
            processes: self.helm_processes,
            timeout: self.helm_timeout,
        };
        let ansible = AnsibleOptions {
            program: self.ansible_playbook.clone(),
            processes: self.ansible_processes,
            timeout: self.ansible_timeout,
        };
        let (helm, ansible) = (HelmProgram::new(helm, clock), AnsibleProgram::new(ansible, clock));
        let mut options = WatchOptions::new(watches.clone(), helm, ansible);
        options.period = self.reconcile_period;
        options.shows_overrides = !self.suppress_override_values;
        options
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ApplyStrategy {
    DynamicApply,
    ServerSideApply,
}

/// Parses `HOST=ADDRESS`.
fn address(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(host, address)| !host.is_empty() && !address.is_empty());
    let (host, address) = parts.ok_or("expected HOST=ADDRESS, such as hook.shop=127.0.0.1:8080")?;
    Ok((host.to_owned(), address.to_owned()))
}

impl Run {
    /// Returns the configuration of the framework's manager. In development, there is no leader election.
    fn config(&self) -> anyhow::Result<ControllerConfig> {
        let config = self.manager.config(NAME, !self.dev);
        config.validate()?;
        Ok(config)
    }

    fn dial(&self) -> anyhow::Result<Arc<dyn Dial>> {
        Ok(Arc::new(GuardedTcp::new(denied("--hook-denied-cidrs", &self.hooks.hook_denied_cidrs)?)))
    }
}

/// Returns the options for the hooks of a directory. In development, their reconciles are printed.
fn options(
    dial: Arc<dyn Dial>,
    commands: &Commands,
    resolved: BTreeMap<String, String>,
    dev: bool,
) -> Options {
    let mut options = Options::new(Network::new(dial, commands.clone()).resolving(resolved));
    if dev {
        options.observer = Some(Arc::new(Shown));
    }
    options
}

pub(crate) async fn run(command: Operator) -> anyhow::Result<()> {
    let Operator::Run(arguments) = command;
    let runtime = Runtime::system();
    let directory = arguments.directory.as_deref().map(Directory::read).transpose()?.unwrap_or_default();
    let commands = Commands::new(&runtime.clock);
    commands.set(directory.commands.clone());
    let mut resolved = directory.resolve.clone();
    resolved.extend(arguments.hooks.resolve.iter().cloned());
    let mut options = options(arguments.dial()?, &commands, resolved, arguments.dev);
    options.apply = match arguments.hooks.apply_strategy {
        ApplyStrategy::DynamicApply => ApplyMode::Dynamic,
        ApplyStrategy::ServerSideApply => ApplyMode::ServerSide,
    };
    options.field_manager = arguments.hooks.apply_strategy_ssa_field_manager.clone();
    options.workers = arguments.hooks.workers;
    options.selector = arguments.hooks.target_label_selector.clone();
    let watches = Watches::new(directory.watches.clone());
    let mut of_watches = arguments.programs.options(&watches, &runtime.clock);
    (of_watches.workers, of_watches.observer) = (options.workers, options.observer.clone());
    let config = arguments.config()?;
    let Connection { config: cluster, client, version } = arguments.manager.connect(NAME).await?;
    let namespace = cluster.default_namespace.clone();
    if arguments.install && directory.has_hooks() {
        let installed = setpoint_hooks::install(&client, &runtime.clock).await;
        installed.context("cannot install the kinds of metacontroller.k8s.io")?;
    }
    let place = Namespace { default: &namespace, creates_missing: false };
    let applied = manifests::apply(&client, &runtime.clock, &place, &directory.manifests).await?;
    let clock = runtime.clock.clone();
    let mut manager = Manager::connect(NAME, cluster, runtime, config).await?;
    let hooks = directory.has_hooks().then(|| setpoint_hooks::runnables(manager.context(), &options));
    let of_watches = setpoint_hooks::watch_runnables(manager.context(), &of_watches);
    for part in hooks.into_iter().flatten().chain(of_watches) {
        manager.add(part);
    }
    let stop = stop_signal()?;
    eprintln!("Applied {applied} manifests. Running operators against Kubernetes {version}");
    let reload = options.reload.clone();
    let reloading = Reloading { client, clock, namespace, creates_missing: false, commands, watches, reload };
    let following = async {
        match arguments.directory.as_deref().filter(|_| arguments.dev) {
            Some(path) => reloading.follow(path, directory).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        reason = manager.run(stop) => ended(reason),
        () = following => Ok(()),
    }
}

/// The operators in a directory, run by the control plane of this process.
pub(crate) struct Operators {
    path: PathBuf,
    directory: Directory,
    commands: Commands,
    options: Options,
    watches: WatchOptions,
}

impl Operators {
    /// Reads the directory. Hooks are called with `dial`.
    pub(crate) fn read(path: &Path, dial: Arc<dyn Dial>, clock: &Clock) -> anyhow::Result<Self> {
        let directory = Directory::read(path)?;
        let commands = Commands::new(clock);
        commands.set(directory.commands.clone());
        let options = options(dial, &commands, directory.resolve.clone(), true);
        let helm = HelmProgram::new(HelmOptions::default(), clock);
        let ansible = AnsibleProgram::new(AnsibleOptions::default(), clock);
        let mut watches = WatchOptions::new(Watches::new(directory.watches.clone()), helm, ansible);
        watches.observer = options.observer.clone();
        Ok(Self { path: path.to_owned(), directory, commands, options, watches })
    }

    /// Returns what runs the operators.
    pub(crate) fn build(&self) -> Build {
        let hooks = self.directory.has_hooks().then(|| self.options.clone());
        let watches = self.watches.clone();
        Arc::new(move |context| {
            let hooks = hooks.as_ref().map(|hooks| setpoint_hooks::runnables(context, hooks));
            let watches = setpoint_hooks::watch_runnables(context, &watches);
            hooks.into_iter().flatten().chain(watches).collect()
        })
    }

    /// Installs the kinds and applies the manifests.
    pub(crate) async fn apply(&self, client: &Client, clock: &Clock) -> anyhow::Result<()> {
        if self.directory.has_hooks() {
            let installed = setpoint_hooks::install(client, clock).await;
            installed.context("cannot install the kinds of metacontroller.k8s.io")?;
        }
        let place = Namespace { default: NAMESPACE, creates_missing: true };
        manifests::apply(client, clock, &place, &self.directory.manifests).await.map(drop)
    }

    /// Watches the files until the future is dropped.
    pub(crate) async fn follow(&self, client: Client, clock: Clock) {
        let (commands, reload) = (self.commands.clone(), self.options.reload.clone());
        let (namespace, watches) = (NAMESPACE.to_owned(), self.watches.watches.clone());
        let reloading =
            Reloading { client, clock, namespace, creates_missing: true, commands, watches, reload };
        reloading.follow(&self.path, self.directory.clone()).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn parsed(flags: &[&str]) -> Run {
        let arguments = Arguments::parse_from(["setpoint", "operator", "run"].iter().chain(flags));
        let Command::Operator(Operator::Run(run)) = arguments.command else { panic!("another command") };
        *run
    }

    #[test]
    fn a_leader_is_elected_unless_someone_develops() {
        let elects = |flags: &[&str]| parsed(flags).config().expect("valid").leader_election.leader_elect;
        assert_eq!((elects(&[]), elects(&["--dev"])), (true, false));
        assert!(elects(&["--dev", "--leader-elect"]) && !elects(&["--leader-elect=false"]));
    }

    #[test]
    fn health_checks_have_an_address_of_their_own() {
        let address = |flags: &[&str]| parsed(flags).config().expect("valid").bind_address;
        assert_eq!(address(&[]), Some("127.0.0.1:8086".parse().expect("an address")));
        assert_eq!(address(&["--bind-address="]), None);
    }

    #[test]
    fn hosts_are_resolved_by_flags() {
        let run = parsed(&["--resolve=hook.shop=127.0.0.1:8080,other=::1"]);
        assert_eq!(run.hooks.resolve[0], ("hook.shop".to_owned(), "127.0.0.1:8080".to_owned()));
        assert!(address("hook.shop").is_err() && address("=1").is_err());
    }

    #[test]
    fn bad_addresses_are_refused() {
        let here = Arguments::try_parse_from(["setpoint", "operator", "run", "--bind-address=here"]);
        assert!(here.expect_err("no address").to_string().contains("expected an address and a port"));
        assert!(parsed(&["--hook-denied-cidrs=10.0.0.0"]).dial().is_err());
        assert!(parsed(&["--hook-denied-cidrs="]).dial().is_ok());
    }
}
