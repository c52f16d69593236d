//! `setpoint application-manager`: runs the controllers of applications against any Kubernetes API server.
//!
//! Everything but the flags is the framework's manager: leader election or sharding, adaptive concurrency, health checks
//! and metrics.

mod webhook;

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, ValueEnum};
use setpoint::config::{ShardBy, ShardingConfig};
use setpoint::{Clock, ControllerConfig, Manager, Rng, Runtime};
use setpoint_oam::admission::{self, Admission};
use setpoint_oam::{Entry, Options, REGISTRY, selected};
use setpoint_webhook::{Cidr, GuardedTcp};

use crate::manager_flags::{Connection, ManagerFlags, denied, ended};
use crate::member_clusters::MemberClusters;
use crate::requests::Requests;
use crate::up::stop_signal;
use webhook::WebhookFlags;

/// The name of the lease, and the user agent of requests.
const NAME: &str = "setpoint-application-manager";

const ELECTS: &str = "Run only while holding the leader election lease; not with --shards [default: true]";

#[derive(Debug, Args)]
#[command(mut_args(with_own_defaults))]
pub(crate) struct ApplicationManager {
    #[command(flatten)]
    manager: ManagerFlags,
    #[command(flatten)]
    sharding: ShardFlags,
    #[command(flatten)]
    controllers: ApplicationControllers,
    /// Adapt the number of workers and the request rate to the load.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL", help_heading = "Controllers")]
    adaptive: bool,
    #[command(flatten)]
    webhook: WebhookFlags,
    /// CIDRs to which workflow steps cannot send requests, even if a name resolves to them. Empty allows every address.
    #[arg(long, value_delimiter = ',', value_name = "CIDRS", help_heading = "Controllers",
        default_values_t = Cidr::link_local().iter().map(Cidr::to_string))]
    request_denied_cidrs: Vec<String>,
    /// Install the kinds and the built-in definitions on startup, or bring them up to date.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL", help_heading = "Controllers")]
    install: bool,
}

/// Changes what this command has in common with others.
fn with_own_defaults(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "bind_address" => arg.default_value("127.0.0.1:8085"),
        "leader_elect" => arg.help(ELECTS),
        "use_service_account_credentials" => arg.hide(true),
        "leader_elect_resource_namespace" => arg.default_value("vela-system"),
        _ => arg,
    }
}

/// How several replicas share the work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Replicas")]
struct ShardFlags {
    /// Split the applications into this many shards, which the replicas share, instead of electing one leader; 0 for
    /// none.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1024))]
    shards: u32,
    /// How objects are assigned to shards.
    #[arg(long, default_value = "hash", value_name = "BY")]
    shard_by: ShardByFlag,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShardByFlag {
    Namespace,
    Hash,
}

/// Which controllers run, with how many workers. Also a part of `setpoint up`.
#[derive(Debug)]
pub(crate) struct ApplicationControllers {
    selection: Vec<String>,
    workers: Vec<(&'static Entry, usize)>,
}

impl ApplicationControllers {
    /// Returns the selected controllers and their options.
    pub(crate) fn chosen(&self) -> anyhow::Result<(Vec<&'static Entry>, Options)> {
        let entries = selected(&self.selection).context("--controllers")?;
        let workers = self.workers.iter().map(|(entry, workers)| (entry.name.to_owned(), *workers));
        let mut options = Options::default();
        options.workers = workers.collect();
        Ok((entries, options))
    }
}

/// Parses a number of workers: at least one.
fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number greater than 0".into())
}

fn workers_arg(entry: &'static Entry) -> Arg {
    Arg::new(entry.workers_flag)
        .long(entry.workers_flag)
        .value_name("N")
        .value_parser(count)
        .help(format!(
            "Number of objects that {} syncs concurrently [default: {}]",
            entry.name, entry.default_workers
        ))
        .help_heading("Controllers")
        .action(ArgAction::Set)
}

impl clap::Args for ApplicationControllers {
    fn augment_args(command: Command) -> Command {
        let selection = Arg::new("application-controllers")
            .long("controllers")
            .value_name("LIST")
            .default_value("*")
            .value_delimiter(',')
            .allow_hyphen_values(true)
            .help("Controllers to run: '*' for all, 'foo' to enable foo, '-foo' to disable it")
            .help_heading("Controllers")
            .action(ArgAction::Append);
        REGISTRY.iter().fold(command.arg(selection), |command, entry| command.arg(workers_arg(entry)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ApplicationControllers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let selection = matches.get_many::<String>("application-controllers").into_iter().flatten().cloned();
        let workers =
            REGISTRY.iter().filter_map(|entry| Some((entry, *matches.get_one::<usize>(entry.workers_flag)?)));
        Ok(Self { selection: selection.collect(), workers: workers.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ApplicationManager {
    /// Returns where workflow steps cannot send requests.
    fn denied(&self) -> anyhow::Result<Vec<Cidr>> {
        denied("--request-denied-cidrs", &self.request_denied_cidrs)
    }

    /// Returns the configuration of the framework's manager.
    fn config(&self) -> anyhow::Result<ControllerConfig> {
        let sharding = self.sharding.config();
        let is_sharded = sharding.shards.is_some();
        let config = self.manager.config(NAME, !is_sharded);
        let config = ControllerConfig { adaptive: self.adaptive, sharding, ..config };
        if config.leader_election.leader_elect && is_sharded {
            bail!("--leader-elect cannot be combined with --shards");
        }
        config.validate()?;
        Ok(config)
    }
}

impl ShardFlags {
    fn config(&self) -> ShardingConfig {
        let by = match self.shard_by {
            ShardByFlag::Namespace => ShardBy::Namespace,
            ShardByFlag::Hash => ShardBy::Hash,
        };
        ShardingConfig { shards: (self.shards > 0).then_some(self.shards), by }
    }
}

pub(crate) async fn run(arguments: ApplicationManager) -> anyhow::Result<()> {
    let (entries, mut options) = arguments.controllers.chosen()?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let dial = Arc::new(GuardedTcp::new(arguments.denied()?));
    let requests = Requests::new(dial.clone());
    options.egress = Some(Arc::new(requests.context("cannot prepare requests of workflow steps")?));
    options.connect = Some(Arc::new(MemberClusters::new(dial, &runtime)));
    let config = arguments.config()?;
    let Connection { config: cluster, client, version } = arguments.manager.connect(NAME).await?;
    if arguments.install {
        let installed = setpoint_oam::install(&client, &runtime.clock).await;
        installed.context("cannot install the kinds of applications")?;
    }
    let mut manager = Manager::connect(NAME, cluster, runtime, config).await?;
    let context = manager.context().clone();
    for part in entries.iter().flat_map(|entry| entry.parts(&context, &options)) {
        manager.add(part);
    }
    let stop = stop_signal()?;
    if let Some(webhook) = arguments.webhook.prepare(&context.runtime.clock).await? {
        let registered = admission::register(&client, &webhook.client_config).await;
        registered.context("cannot register the webhook of applications")?;
        tokio::spawn(webhook.serve(Admission::new(&context), stop.clone()));
    }
    eprintln!("Running {} controllers against Kubernetes {version}", entries.len());
    ended(manager.run(stop).await)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn parsed(flags: &[&str]) -> ApplicationManager {
        let arguments = Arguments::parse_from(["setpoint", "application-manager"].iter().chain(flags));
        let Command::ApplicationManager(manager) = arguments.command else { panic!("another command") };
        *manager
    }

    #[test]
    fn replicas_elect_a_leader_or_share_shards() {
        assert!(parsed(&[]).config().unwrap().leader_election.leader_elect);
        let sharded = parsed(&["--shards=4", "--shard-by=namespace"]).config().unwrap();
        assert_eq!((sharded.sharding.shards, sharded.leader_election.leader_elect), (Some(4), false));
        let both = parsed(&["--shards=4", "--leader-elect"]).config().unwrap_err();
        assert!(both.to_string().contains("cannot be combined with --shards"), "{both}");
    }

    #[test]
    fn workers_and_controllers_are_chosen_by_flags_of_the_registry() {
        let manager = parsed(&["--controllers=*,-definition-controller", "--concurrent-application-syncs=3"]);
        let (entries, options) = manager.controllers.chosen().unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["application-controller", "workflow-run-controller", "resource-graph-controller"]);
        assert_eq!(options.workers["application-controller"], 3);
        assert!(parsed(&["--controllers=wrong"]).controllers.chosen().is_err());
    }

    #[test]
    fn requests_of_steps_cannot_reach_denied_ranges() {
        let denied = |flags: &[&str]| {
            parsed(flags).denied().map(|all| all.iter().map(Cidr::to_string).collect::<Vec<_>>())
        };
        assert_eq!(denied(&[]).unwrap(), ["169.254.0.0/16", "fe80::/10"]);
        assert_eq!(
            denied(&["--request-denied-cidrs=10.0.0.0/8,::1/128"]).unwrap(),
            ["10.0.0.0/8", "::1/128"]
        );
        assert!(denied(&["--request-denied-cidrs="]).unwrap().is_empty());
        let error = format!("{:#}", denied(&["--request-denied-cidrs=10.0.0.0"]).unwrap_err());
        assert!(
            error.contains("--request-denied-cidrs") && error.contains("expected ADDRESS/PREFIX"),
            "{error}"
        );
    }

    #[test]
    fn the_lease_is_where_velas_is() {
        let config = parsed(&[]).config().unwrap();
        assert_eq!(config.leader_election.resource_namespace, "vela-system");
        assert_eq!(config.bind_address, Some("127.0.0.1:8085".parse().unwrap()));
    }
}
