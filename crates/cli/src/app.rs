//! `setpoint app`: applications, for the teams that run them.
//!
//! ```text
//!  connection.rs  flags and the client
//!  clusters.rs    other clusters, by their registered credentials
//!  output.rs      tables, YAML, JSON, ages
//!  status.rs      phase, health, what blocks
//!  tree.rs        the objects of an application
//!  render.rs      dry-run and diff
//!  lines.rs       differences between two texts                                  (pure)
//!  operate.rs     suspend, resume, restart, terminate, rollback
//!  revisions.rs   revisions
//! ```
//!
//! Follows kubectl: results on stdout, everything else on stderr, exit code 1 for an error. `diff` exits with 1 if there
//! is a difference, and with 2 for an error.

mod clusters;
pub(crate) mod connection;
pub(crate) mod lines;
mod operate;
pub(crate) mod output;
pub(crate) mod render;
mod revisions;
mod status;
mod tree;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use setpoint::Kind;

use connection::Namespaced;
use output::Format;
use render::FileFlags;

#[derive(Debug, Subcommand)]
pub(crate) enum App {
    /// Show the phase of applications, the health of their components and what blocks them.
    Status(Status),
    /// Show the objects of an application, and what they own.
    Tree(Named),
    /// Show what applying a file would change; exits with 1 if anything would.
    Diff(Diff),
    /// Render an application without a cluster.
    DryRun(DryRun),
    /// Suspend the workflow of an application, or of workflowrun/NAME.
    Suspend(Named),
    /// Resume a suspended workflow, also of workflowrun/NAME.
    Resume(Named),
    /// Run the workflow of an application, or of workflowrun/NAME, again from the start.
    Restart(Named),
    /// Return an application to its last revision that succeeded.
    Rollback(Rollback),
    /// End the workflow of an application, or of workflowrun/NAME; unfinished steps fail.
    Terminate(Named),
    /// List the revisions of an application.
    Revisions(Revisions),
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Name of the application.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    target: Namespaced,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of the application [default: all].
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show applications of all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    #[command(flatten)]
    target: Namespaced,
    /// Output format.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    file: FileFlags,
    #[command(flatten)]
    target: Namespaced,
}

#[derive(Debug, Args)]
pub(crate) struct DryRun {
    #[command(flatten)]
    file: FileFlags,
    /// Files with definitions beside the built-in ones: CUE or YAML.
    #[arg(long, short, value_name = "FILES", value_delimiter = ',')]
    definitions: Vec<std::path::PathBuf>,
    /// Output format.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    app: Named,
    /// Revision to return to [default: the last one before the current that succeeded].
    #[arg(long, value_name = "REVISION")]
    to_revision: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Revisions {
    #[command(flatten)]
    app: Named,
    /// Output format.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

fn applications() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "Application", "applications", true)
}

pub(crate) async fn run(command: App) -> anyhow::Result<ExitCode> {
    match command {
        App::Status(arguments) => status::run(arguments).await?,
        App::Tree(named) => tree::run(named).await?,
        App::Diff(arguments) => return render::diff(arguments).await,
        App::DryRun(arguments) => render::dry_run(&arguments)?,
        App::Suspend(named) => operate::suspend(&named).await?,
        App::Resume(named) => operate::resume(&named).await?,
        App::Restart(named) => operate::restart(&named).await?,
        App::Rollback(arguments) => operate::rollback(&arguments).await?,
        App::Terminate(named) => operate::terminate(&named).await?,
        App::Revisions(arguments) => revisions::run(&arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Named {
    async fn connect(&self) -> anyhow::Result<connection::Connection> {
        self.target.connect().await
    }
}
