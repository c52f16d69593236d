//! Diagnostics on stderr: structured, and quiet unless asked.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Args)]
pub(crate) struct Logging {
    /// What is logged: a level, or a filter such as `warn,setpoint::worker=debug`.
    #[arg(long, global = true, default_value = "warn", env = "SETPOINT_LOG", value_name = "FILTER")]
    log: String,
    /// How it is logged.
    #[arg(long, global = true, default_value = "text")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Starts logging for the whole process.
pub(crate) fn start(logging: &Logging) {
    let filter = EnvFilter::builder().parse_lossy(&logging.log);
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    match logging.log_format {
        Format::Text => subscriber.with_ansi(coloured).init(),
        Format::Json => subscriber.json().init(),
    }
}
