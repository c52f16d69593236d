//! Exports traces to an OpenTelemetry collector: a span per reconcile, sent in batches over HTTP. Requires the feature
//! `otel`.
//!
//! The worker always opens a `tracing` span for every reconcile (controller, object, trigger, outcome). This module
//! sends that span, with the spans and events inside it, to a collector.
//!
//! Invariants:
//! - Nothing waits for the collector. Spans go through a bounded queue (2,048 spans, batches of 512) to a dedicated
//!   thread. Spans that do not fit are dropped and counted.
//! - A program that exports nothing has no layer, no thread and no overhead.
//!
//! These environment variables apply in addition to the configuration: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`, `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_BSP_*`.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::registry::LookupSpan;

use crate::ControllerConfig;

/// The timeout for a collector's response. After that, the batch is retried a few times.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum response size: collectors respond with a few bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// An exporter of traces to a collector, active from [`export`](Self::export) until [`finish`](Self::finish).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint::telemetry::Telemetry;
/// use tracing_subscriber::layer::SubscriberExt;
/// use tracing_subscriber::util::SubscriberInitExt;
/// let telemetry = Telemetry::export("http://localhost:4318", "my-operator")?;
/// tracing_subscriber::registry().with(telemetry.layer()).init();
/// // … run the manager …
/// telemetry.finish().await;
/// # Ok(()) }
/// ```
pub struct Telemetry {
    provider: SdkTracerProvider,
}

/// An error while setting up the trace exporter.
///
/// ```
/// let error = setpoint::telemetry::Telemetry::export("collector:4317", "my-operator").err().unwrap();
/// assert!(error.to_string().starts_with("tracing.endpoint: expected a URL such as http://localhost:4318"));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The endpoint is not a valid collector URL.
    #[error("tracing.endpoint: expected a URL such as http://localhost:4318, not {0:?}")]
    Endpoint(String),
    /// No root certificates were found to verify the collector with.
    #[error("cannot load the trusted certificates of the collector")]
    Certificates(#[source] std::io::Error),
    /// The exporter could not be created.
    #[error("cannot create the trace exporter")]
    Exporter(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Telemetry {
    /// Exports to the collector at `endpoint`, its OTLP/HTTP base address (`/v1/traces` is appended), as `service`
    /// unless `OTEL_SERVICE_NAME` is set. Call this inside a Tokio runtime, which then sends the requests.
    pub fn export(endpoint: &str, service: &'static str) -> Result<Self, TelemetryError> {
        let (client, traces) = Sender::to(endpoint)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(traces)
            .with_timeout(TIMEOUT)
            .build()
            .map_err(|error| TelemetryError::Exporter(Box::new(error)))?;
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => Resource::builder(),
            None => Resource::builder().with_service_name(service),
        };
        let builder = SdkTracerProvider::builder().with_batch_exporter(exporter);
        Ok(Self { provider: builder.with_resource(resource.build()).build() })
    }

    /// Exports according to the configuration (`tracing.endpoint`). Returns `None` if it is not set.
    ///
    /// ```
    /// use setpoint::{ControllerConfig, telemetry::Telemetry};
    /// assert!(Telemetry::configured(&ControllerConfig::default(), "my-operator").unwrap().is_none());
    /// ```
    pub fn configured(
        config: &ControllerConfig,
        service: &'static str,
    ) -> Result<Option<Self>, TelemetryError> {
        config.tracing.endpoint.as_deref().map(|endpoint| Self::export(endpoint, service)).transpose()
    }

    /// Returns the `tracing` layer that exports spans of level INFO and above, and the events in them.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>(
        &self,
    ) -> impl Layer<S> + Send + Sync + use<S> {
        // Exporting the exporter's own spans would create more of them.
        let of_others = FilterFn::new(|metadata| {
            *metadata.level() <= tracing::Level::INFO && !metadata.target().starts_with("opentelemetry")
        });
        let tracer = self.provider.tracer("setpoint");
        let layer =
            tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        layer.with_filter(of_others.with_max_level_hint(LevelFilter::INFO))
    }

    /// Sends the remaining spans and shuts down the exporter.
    pub async fn finish(self) {
        let (sender, done) = tokio::sync::oneshot::channel();
        // Shutdown waits for requests that this runtime sends, so it must not block one of its threads.
        std::thread::spawn(move || sender.send(self.provider.shutdown_with_timeout(TIMEOUT)));
        match done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "not all traces could be sent"),
            Err(_) => tracing::warn!("not all traces could be sent"),
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// An HTTP client for callers outside of a Tokio runtime: batches come from a dedicated thread.
#[derive(Debug)]
struct Sender {
    runtime: Handle,
    client: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Sender {
    /// Creates the sender for a collector, and returns it with the URL for traces.
    fn to(endpoint: &str) -> Result<(Self, String), TelemetryError> {
        let wrong = || TelemetryError::Endpoint(endpoint.to_owned());
        let url: Uri = endpoint.parse().map_err(|_| wrong())?;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.authority().is_none() {
            return Err(wrong());
        }
        let connector = match url.scheme_str() {
            Some("https") => {
                let provider = rustls::crypto::ring::default_provider();
                HttpsConnectorBuilder::new()
                    .with_provider_and_native_roots(provider)
                    .map_err(TelemetryError::Certificates)?
            }
            _ => HttpsConnectorBuilder::new().with_tls_config(no_certificates()),
        };
        let connector = connector.https_or_http().enable_http1().build();
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        let traces = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        Ok((Self { runtime: Handle::current(), client }, traces))
    }
}

/// Trusts no certificates, for plain HTTP.
fn no_certificates() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider supports the default versions");
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

impl HttpClient for Sender {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let response = client.request(request.map(Full::new)).await?;
                let (head, body) = response.into_parts();
                let body = Limited::new(body, MAX_RESPONSE).collect().await?.to_bytes();
                Ok::<_, HttpError>(Response::from_parts(head, body))
            };
            tokio::time::timeout(TIMEOUT, exchange).await?
        });
        Box::pin(async move { sent.await? })
    }
}
