//! Reconciles as OpenTelemetry spans.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use parking_lot::Mutex;
use setpoint::{Clock, Controller, Key, Outcome, Queue, ReconcileError, Reconciler, Rng, Runnable, Runtime};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;

/// Keeps what is exported.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

/// Looks into something.
struct Curious;

impl Reconciler for Curious {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        tracing::info_span!("look", at = key.name()).in_scope(|| Ok(Outcome::Settled))
    }
}

#[tokio::test(start_paused = true)]
async fn every_reconcile_is_exported_as_a_span_with_what_it_did_inside() {
    let exporter = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let _guard = tracing::subscriber::set_default(
        tracing_subscriber::registry().with(setpoint::otel::layer(&provider)),
    );

    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::new("curious", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    queue.add(Key::namespaced("shop", "web"));
    let controller = Box::new(Controller::new("curious", queue, Curious));
    let running = tokio::spawn(controller.run(CancellationToken::new()));
    clock.sleep(Duration::from_secs(1)).await;
    running.abort();

    let spans = exporter.0.lock();
    let names: Vec<_> = spans.iter().map(|span| span.name.to_string()).collect();
    assert_eq!(names, ["look", "reconcile"]);
    assert_eq!(spans[0].parent_span_id, spans[1].span_context.span_id());
    let attribute = |name: &str| {
        let found = spans[1].attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map(|attribute| attribute.value.to_string())
    };
    assert_eq!(attribute("controller").as_deref(), Some("curious"));
    assert_eq!(attribute("object").as_deref(), Some("shop/web"));
    assert_eq!(attribute("trigger").as_deref(), Some("asked"));
}
