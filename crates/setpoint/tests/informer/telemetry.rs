//! Traces as a collector receives them, over a socket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use parking_lot::Mutex;
use prost::Message;
use setpoint::telemetry::{Telemetry, TelemetryError};
use setpoint::{Clock, Controller, Key, Outcome, Queue, ReconcileError, Reconciler, Rng, Runnable, Runtime};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;

/// The requests a collector has received.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, ExportTraceServiceRequest)>>>);

impl Collector {
    /// Starts listening and returns the address.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let collector = collector.clone();
                let service = hyper::service::service_fn(move |request| collector.clone().collect(request));
                let serving = hyper::server::conn::http1::Builder::new();
                tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
            }
        });
        format!("http://{address}")
    }

    async fn collect(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("a whole request").to_bytes();
        self.0.lock().push((path, ExportTraceServiceRequest::decode(body).expect("protobuf")));
        Ok(Response::new(Full::default()))
    }

    /// Returns the spans in the order they started.
    fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock();
        let of_resources = requests.iter().flat_map(|(_, request)| &request.resource_spans);
        let of_scopes = of_resources.flat_map(|resource| &resource.scope_spans);
        let mut spans: Vec<Span> = of_scopes.flat_map(|scope| scope.spans.clone()).collect();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }

    fn service(&self) -> Option<String> {
        let requests = self.0.lock();
        let resource = requests.first()?.1.resource_spans.first()?.resource.as_ref()?;
        text(&resource.attributes, "service.name")
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// Fails the first time.
#[derive(Default)]
struct Hesitant {
    tried: Mutex<bool>,
    stop: CancellationToken,
}

impl Reconciler for Hesitant {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        if !std::mem::replace(&mut *self.tried.lock(), true) {
            return Err(ReconcileError::retry("greet"));
        }
        let inner = tracing::info_span!("greet", name = key.name());
        inner.in_scope(|| tracing::info!("hello"));
        self.stop.cancel();
        Ok(Outcome::Settled)
    }
}

/// Reconciles a greeting with traces exported to this endpoint.
async fn greet(endpoint: &str) {
    let telemetry = Telemetry::export(endpoint, "greeter").expect("an exporter");
    let _subscribed =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(telemetry.layer()));
    let runtime = Runtime { clock: Clock::system(), rng: Rng::seeded(1) };
    let queue = Queue::new("greeter", &runtime);
    queue.add(Key::namespaced("default", "world"));
    let stop = CancellationToken::new();
    let reconciler = Hesitant { stop: stop.clone(), ..Hesitant::default() };
    let controller = Controller::new("greeter", queue, reconciler).drain_within(Duration::from_secs(5));
    Box::new(controller).run(stop).await;
    telemetry.finish().await;
}

#[tokio::test]
async fn every_reconcile_reaches_a_collector_as_a_span() {
    let collector = Collector::default();
    let endpoint = collector.start().await;
    greet(&endpoint).await;
    let spans = collector.spans();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["reconcile", "reconcile", "greet"]);
    let attribute = |span: &Span, name: &str| text(&span.attributes, name);
    for span in &spans[..2] {
        assert_eq!(attribute(span, "controller").as_deref(), Some("greeter"));
        assert_eq!(attribute(span, "object").as_deref(), Some("default/world"));
    }
    assert_eq!(attribute(&spans[0], "trigger").as_deref(), Some("asked"));
    assert_eq!(attribute(&spans[1], "trigger").as_deref(), Some("retry"));
    let failed = |span: &Span| span.status.as_ref().is_some_and(|it| it.code() == StatusCode::Error);
    assert!(failed(&spans[0]) && !failed(&spans[1]));
    assert_eq!(attribute(&spans[1], "outcome").as_deref(), Some("settled"));
    assert_eq!((&spans[2].parent_span_id, &spans[2].trace_id), (&spans[1].span_id, &spans[1].trace_id));
    assert_eq!(spans[2].events.len(), 1, "events in a span belong to it");
    assert!(collector.0.lock().iter().all(|(path, _)| path == "/v1/traces"));
    assert_eq!(collector.service().as_deref(), Some("greeter"));
}

/// Traces must never hold up the process.
#[tokio::test]
async fn a_missing_collector_blocks_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("it was bound");
    greet(&format!("http://{free}")).await;
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_refused() {
    for wrong in ["collector:4317", "grpc://collector:4317", "", "http://"] {
        let refused = Telemetry::export(wrong, "greeter");
        assert!(matches!(refused, Err(TelemetryError::Endpoint(_))), "{wrong}");
    }
}
