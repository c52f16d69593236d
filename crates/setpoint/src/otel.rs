//! Traces for OpenTelemetry. Every reconcile is a `tracing` span with its controller, object, number and
//! trigger; a layer hands these spans, and those that a reconciler opens within, on to an exporter.
//!
//! Only with the feature `otel`: whoever does not export traces builds none of this.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// The name under which the spans are traced.
const SCOPE: &str = "setpoint";

/// Sends spans to an OTLP collector over HTTP (`http://localhost:4318/v1/traces`), in batches, from a thread of
/// its own. Shut the provider down in the end: what has not been sent is sent then.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tracing_subscriber::layer::SubscriberExt;
/// use tracing_subscriber::util::SubscriberInitExt;
/// let provider = setpoint::otel::otlp("shop-operator", "http://localhost:4318/v1/traces")?;
/// tracing_subscriber::registry().with(setpoint::otel::layer(&provider)).init();
/// // … run the manager …
/// provider.shutdown()?;
/// # Ok(()) }
/// ```
pub fn otlp(service: &str, endpoint: &str) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build()?;
    let resource = Resource::builder().with_service_name(service.to_owned()).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// A layer that hands spans on to the provider's exporters, whatever they are.
pub fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    tracing_opentelemetry::layer().with_tracer(provider.tracer(SCOPE))
}
