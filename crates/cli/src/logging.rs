//! Structured logs on stderr. Warnings and errors by default.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use setpoint::telemetry::{Telemetry, TelemetryError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

#[derive(Debug, Args)]
pub(crate) struct Logging {
    /// Log level, or a filter such as `warn,setpoint::worker=debug`.
    #[arg(long, global = true, default_value = "warn", env = "SETPOINT_LOG", value_name = "FILTER")]
    log: String,
    /// Log format.
    #[arg(long, global = true, default_value = "text", alias = "logging-format")]
    log_format: Format,
    /// Send a trace of every reconcile to the OpenTelemetry collector at this URL, over OTLP/HTTP.
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Log verbosity as in Kubernetes: 2 is info, 4 is debug, 6 is trace.
    #[arg(short = 'v', long = "v", global = true, default_value_t = 0, value_name = "LEVEL")]
    verbosity: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Starts logging for the whole process, and tracing if an endpoint is set. Call this inside a Tokio runtime.
pub(crate) fn start(logging: &Logging) -> Result<Option<Telemetry>, TelemetryError> {
    match logging.otlp_endpoint.as_deref() {
        None | Some("") => {
            log_alone(logging);
            Ok(None)
        }
        Some(endpoint) => {
            let telemetry = Telemetry::export(endpoint, "setpoint")?;
            log_and_trace(logging, &telemetry);
            Ok(Some(telemetry))
        }
    }
}

impl Logging {
    fn filter(&self) -> EnvFilter {
        let more = match self.verbosity {
            0..2 => None,
            2..4 => Some("info"),
            4..6 => Some("debug"),
            _ => Some("trace"),
        };
        EnvFilter::builder().parse_lossy(more.unwrap_or(&self.log))
    }

    fn is_coloured() -> bool {
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
    }
}

/// Uses a single filter, so that a disabled log statement costs one load.
fn log_alone(logging: &Logging) {
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(logging.filter());
    match logging.log_format {
        Format::Text => subscriber.with_ansi(Logging::is_coloured()).init(),
        Format::Json => subscriber.json().init(),
    }
}

/// Sets up logging and tracing, each with its own filter.
fn log_and_trace(logging: &Logging, telemetry: &Telemetry) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match logging.log_format {
        Format::Text => lines.with_ansi(Logging::is_coloured()).with_filter(logging.filter()).boxed(),
        Format::Json => lines.json().with_filter(logging.filter()).boxed(),
    };
    tracing_subscriber::registry().with(lines).with(telemetry.layer()).init();
}
