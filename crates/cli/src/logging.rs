//! Diagnostics on stderr: structured, and quiet unless asked.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use setpoint::telemetry::{Telemetry, TelemetryError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

#[derive(Debug, Args)]
pub(crate) struct Logging {
    /// What is logged: a level, or a filter such as `warn,setpoint::worker=debug`.
    #[arg(long, global = true, default_value = "warn", env = "SETPOINT_LOG", value_name = "FILTER")]
    log: String,
    /// How it is logged.
    #[arg(long, global = true, default_value = "text")]
    log_format: Format,
    /// Send a trace of every reconcile to the OpenTelemetry collector at this URL, over OTLP/HTTP.
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Starts logging for the whole process, and traces where somebody wants them. Call inside a runtime.
pub(crate) fn start(logging: &Logging) -> Result<Option<Telemetry>, TelemetryError> {
    let filter = EnvFilter::builder().parse_lossy(&logging.log);
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let endpoint = logging.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    let telemetry = endpoint.map(|endpoint| Telemetry::export(endpoint, "setpoint")).transpose()?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match logging.log_format {
        Format::Text => lines.with_ansi(coloured).with_filter(filter).boxed(),
        Format::Json => lines.json().with_filter(filter).boxed(),
    };
    let traces = telemetry.as_ref().map(Telemetry::layer);
    tracing_subscriber::registry().with(lines).with(traces).init();
    Ok(telemetry)
}
