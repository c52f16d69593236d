//! The HTTPS server for webhooks.
//!
//! Bounds: 256 connections; 32 reviews at a time of at most 16 MiB each, half a gigabyte as text in the worst case and
//! several times that when decoded; ten seconds for a handshake and for the head of a request, five for its body,
//! thirty for a review. The API server itself waits for at most thirty. HTTP/2 peers that do not respond to pings are
//! disconnected.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use setpoint_clock::Clock;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Webhooks;
use super::certificate::{self, Certificates, Material};
use super::configure::Endpoint;
use super::keep::{self, Keeper};
use crate::health::Check;
use crate::manager::ConnectError;
use crate::metrics::Metrics;
use crate::{Context, Informer, Manager, Runnable};

/// The settings of the webhook server.
///
/// ```
/// use setpoint::{Key, webhook::{Certificates, Endpoint, WebhookServer}};
/// let server = WebhookServer {
///     address: ([0, 0, 0, 0], 9443).into(),
///     endpoint: Endpoint::service("shop", "operator"),
///     certificates: Certificates::Secret(Key::namespaced("shop", "operator-webhook")),
/// };
/// ```
#[derive(Clone, Debug)]
pub struct WebhookServer {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The address at which the API server reaches it.
    pub endpoint: Endpoint,
    /// The source of its certificates.
    pub certificates: Certificates,
}

const MAX_CONNECTIONS: usize = 256;
const MAX_REVIEWS: usize = 32;
const MAX_BYTES: usize = 16 << 20;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How often the certificate is checked for changes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

const LATENCY_BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

impl Manager {
    /// Serves webhooks in every replica. The leader keeps the certificates, the webhook configurations and
    /// `spec.conversion` of CRDs up to date.
    ///
    /// ```no_run
    /// # fn example(manager: setpoint::Manager) -> Result<(), Box<dyn std::error::Error>> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::{Key, webhook::{Certificates, Denied, Endpoint, WebhookServer, Webhooks}};
    /// let webhooks = Webhooks::new("operator").validate(|map: &ConfigMap| match map.data {
    ///     None => Err(Denied::from("an empty ConfigMap is of no use")),
    ///     Some(_) => Ok(()),
    /// });
    /// let server = WebhookServer {
    ///     address: ([0, 0, 0, 0], 9443).into(),
    ///     endpoint: Endpoint::service("shop", "operator"),
    ///     certificates: Certificates::Secret(Key::namespaced("shop", "operator-webhook")),
    /// };
    /// let manager = manager.with_webhooks(webhooks, server)?;
    /// # Ok(()) }
    /// ```
    pub fn with_webhooks(mut self, webhooks: Webhooks, server: WebhookServer) -> Result<Self, ConnectError> {
        let WebhookServer { address, endpoint, certificates } = server;
        let listen = |source| ConnectError::Listen { address, purpose: "webhooks", source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let context = self.context().clone();
        let secret = keep::secret(&context, &certificates);
        let serving = Serving {
            listener,
            certificate: Arc::default(),
            source: CertificateSource { certificates: certificates.clone(), secret: secret.clone() },
            reviewer: Reviewer::new(webhooks.clone(), &context),
        };
        self.add(serving);
        self.add(Keeper::new(context, webhooks, endpoint, certificates, secret));
        Ok(self)
    }
}

/// A runnable that serves webhooks, in every replica.
struct Serving {
    listener: TcpListener,
    certificate: Arc<Loaded>,
    source: CertificateSource,
    reviewer: Reviewer,
}

/// The certificate that is currently served.
#[derive(Debug, Default)]
struct Loaded(RwLock<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Loaded {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}

/// The source of the certificate.
struct CertificateSource {
    certificates: Certificates,
    secret: Option<Informer>,
}

impl CertificateSource {
    fn read(&self) -> Option<Material> {
        match (&self.certificates, &self.secret) {
            (Certificates::Secret(key), Some(secret)) => keep::material(secret, key),
            (Certificates::Files(directory), _) => {
                let read = certificate::read(directory);
                read.inspect_err(|error| tracing::warn!(%error, "cannot read the certificate of webhooks"))
                    .ok()
            }
            (Certificates::Secret(_), None) => None,
        }
    }
}

impl Runnable for Serving {
    fn name(&self) -> &str {
        "webhooks"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.serve(stop))
    }

    fn readiness(&self) -> Option<Check> {
        let certificate = self.certificate.clone();
        Some(Arc::new(move || match certificate.0.read().is_some() {
            true => Ok(()),
            false => Err("there is no certificate yet".into()),
        }))
    }

    fn needs_leader(&self) -> bool {
        false
    }
}

impl Serving {
    async fn serve(self: Box<Self>, stop: CancellationToken) {
        let Self { listener, certificate, source, reviewer } = *self;
        let (acceptor, listener) =
            match (acceptor(certificate.clone()), tokio::net::TcpListener::from_std(listener)) {
                (Ok(acceptor), Ok(listener)) => (acceptor, listener),
                (acceptor, listener) => {
                    let (tls, io) = (acceptor.err(), listener.err());
                    return tracing::error!(?tls, ?io, "cannot serve webhooks");
                }
            };
        let (graceful, connections) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        let (mut shown, mut open) = (None, JoinSet::new());
        loop {
            reload(&source, &certificate, &mut shown);
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = open.join_next() => continue,
                () = reviewer.clock.sleep(RELOAD_INTERVAL) => continue,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to webhooks");
                    reviewer.clock.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Further connections are closed immediately: the API server retries.
            let Ok(connection) = connections.clone().try_acquire_owned() else { continue };
            let (acceptor, reviewer, watcher) = (acceptor.clone(), reviewer.clone(), graceful.watcher());
            open.spawn(async move {
                let _connection = connection;
                reviewer.serve(stream, &acceptor, watcher).await;
            });
        }
        let _ = tokio::time::timeout(REVIEW_TIMEOUT, graceful.shutdown()).await;
    }
}

/// Loads the certificate if it has changed. An invalid one is logged once, and the previous one stays in use.
fn reload(source: &CertificateSource, certificate: &Loaded, shown: &mut Option<Material>) {
    let read = source.read();
    if read.is_none() || read == *shown {
        return;
    }
    match read.as_ref().map(certificate::certified) {
        Some(Ok(certified)) => *certificate.0.write() = Some(certified),
        Some(Err(error)) => tracing::warn!(%error, "cannot use the certificate of webhooks"),
        None => {}
    }
    *shown = read;
}

fn acceptor(certificate: Arc<Loaded>) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Responds to requests. Cheap to clone.
#[derive(Clone)]
struct Reviewer {
    webhooks: Arc<Webhooks>,
    clock: Clock,
    metrics: Metrics,
    reviews: Arc<Semaphore>,
}

impl Reviewer {
    fn new(webhooks: Webhooks, context: &Context) -> Self {
        Self {
            webhooks: Arc::new(webhooks),
            clock: context.runtime.clock.clone(),
            metrics: context.metrics.clone(),
            reviews: Arc::new(Semaphore::new(MAX_REVIEWS)),
        }
    }

    async fn serve(self, stream: TcpStream, acceptor: &TlsAcceptor, watcher: Watcher) {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = handshake else { return };
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let reviewer = self.clone();
            async move { Ok::<_, Infallible>(reviewer.respond(request).await) }
        });
        // The protocol is known from the handshake. Detecting it would wait for the first bytes without a timeout.
        let mut builder = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Builder::new(TokioExecutor::new()).http2_only(),
            _ => Builder::new(TokioExecutor::new()).http1_only(),
        };
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(HANDSHAKE_TIMEOUT)
            .max_concurrent_streams(MAX_REVIEWS as u32);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection to webhooks ended early");
        }
    }

    /// Responds to a request, and counts it under its path if there is a webhook.
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let started = self.clock.instant();
        let path = request.uri().path().to_owned();
        let reviewed = tokio::time::timeout(REVIEW_TIMEOUT, self.review(request)).await;
        let (code, body) = reviewed.unwrap_or((504, Bytes::from_static(b"the webhook took too long\n")));
        let known = self.webhooks.paths().contains(&path);
        let webhook = if known { path.as_str() } else { "unknown" };
        let took = self.clock.instant().saturating_duration_since(started).as_secs_f64();
        let help = "Webhook requests, by path and status code";
        let labels = [("webhook", webhook), ("code", &code.to_string())];
        self.metrics.count("controller_runtime_webhook_requests", help, &labels, 1);
        let help = "Seconds to respond to webhook requests";
        let name = "controller_runtime_webhook_latency_seconds";
        self.metrics.observe(name, help, LATENCY_BOUNDS, &[("webhook", webhook)], took);
        response(code, body)
    }

    async fn review(&self, request: Request<Incoming>) -> (u16, Bytes) {
        if request.method() != Method::POST {
            return (405, Bytes::from_static(b"reviews are posted\n"));
        }
        let Ok(_review) = self.reviews.acquire().await else { return (503, Bytes::new()) };
        let (head, body) = request.into_parts();
        let read = tokio::time::timeout(READ_TIMEOUT, Limited::new(body, MAX_BYTES).collect()).await;
        let Ok(read) = read else {
            return (408, Bytes::from_static(b"the review took too long to arrive\n"));
        };
        match read {
            Ok(body) => self.webhooks.respond(head.uri.path(), &body.to_bytes()).await,
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                (413, Bytes::from(format!("a review is at most {MAX_BYTES} bytes\n")))
            }
            Err(error) => (400, Bytes::from(format!("cannot read the review: {error}\n"))),
        }
    }
}

fn response(code: u16, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let media_type = if code == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
