//! The `setpoint` binary: arguments → configuration → run.

mod add;
mod api_server;
mod apiserver;
mod apiserver_flags;
mod app;
mod application_manager;
mod args;
mod bundle;
mod certs;
mod cluster;
mod controller_manager;
mod def;
mod kubeconfig;
mod kubelet_access;
mod logging;
mod manager_flags;
mod member_clusters;
mod migrate;
mod new;
mod node;
mod operator;
#[cfg(test)]
mod pages;
mod pki;
mod process;
mod requests;
mod reviews;
mod scheduler;
mod snapshot;
mod up;
mod why;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Arguments, Command};

// Long-lived caches of small buffers fragment the system allocator. jemalloc returns memory.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match run(arguments()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the command line. As a plugin of kubectl, the program is called `kubectl-setpoint`.
fn arguments() -> Arguments {
    let is_plugin = std::env::args_os().next().is_some_and(|program| {
        Path::new(&program).file_stem().is_some_and(|name| name == "kubectl-setpoint")
    });
    let command = Arguments::command();
    let command = if is_plugin { command.bin_name("kubectl setpoint") } else { command };
    let matches = command.get_matches_from(std::env::args_os().map(with_dashes));
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Replaces underscores in flag names with dashes, as Kubernetes does.
fn with_dashes(argument: OsString) -> OsString {
    match argument.to_str().filter(|text| text.starts_with("--")) {
        Some(text) => {
            let end = text.find('=').unwrap_or(text.len());
            (text[..end].replace('_', "-") + &text[end..]).into()
        }
        None => argument,
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let threads = threads(&arguments.command);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let telemetry = logging::start(&arguments.logging)?;
        let done = execute(arguments.command).await;
        if let Some(telemetry) = telemetry {
            telemetry.finish().await;
        }
        done
    })
}

async fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        // Some of these tell more with their exit code than success or failure.
        Command::App(command) => return app::run(command).await,
        Command::Why(arguments) => return Ok(why::run(arguments).await),
        Command::Def(command) => def::run(command).await?,
        Command::Cluster(command) => cluster::run(command).await?,
        Command::Up(options) => up::run(*options).await?,
        Command::Apiserver(options) => apiserver::run(*options).await?,
        Command::Scheduler(options) => scheduler::run(*options).await?,
        Command::ControllerManager(options) => controller_manager::run(*options).await?,
        Command::ApplicationManager(options) => application_manager::run(*options).await?,
        Command::Operator(command) => operator::run(command).await?,
        Command::New(options) => new::run(*options)?,
        Command::Add(command) => add::run(command)?,
        Command::Bundle(options) => bundle::run(&options)?,
        Command::Node(command) => node::run(command).await?,
        Command::Certs(command) => certs::run(command)?,
        Command::Snapshot(command) => snapshot::run(command)?,
        Command::Migrate(options) => migrate::run(*options).await?,
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "setpoint", &mut std::io::stdout());
        }
        Command::Man { directory } => manual(&directory)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for each command: `setpoint.1`, `setpoint-up.1`, …
fn manual(directory: &Path) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory));
    written.with_context(|| format!("cannot write manual pages to {}", directory.display()))
}

/// Returns the number of threads for a command, at least one. Controllers mostly wait for a remote API server, so half
/// of the cores are plenty: threads that wake each other to find nothing to do took a fifth of a controller manager's
/// time.
fn threads(command: &Command) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match command {
        Command::Up(_) | Command::Apiserver(_) => cores,
        Command::ControllerManager(_)
        | Command::Scheduler(_)
        | Command::ApplicationManager(_)
        | Command::Operator(_) => (cores / 2).max(1),
        _ => 1,
    }
}
