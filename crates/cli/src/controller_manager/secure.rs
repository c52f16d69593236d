//! The secure port: health, metrics and configuration, over TLS.
//!
//! Whoever asks is known by a client certificate or by a token, which the API server is asked about; what they may
//! see the API server is asked too. Health is for everybody, as kube-controller-manager has it. Without a
//! certificate one is made that nobody else signs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use setpoint::health::{Health, Report};
use setpoint::metrics::Metrics;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::delegated::{Delegated, Denial};

/// Connections at once: scrapers and probes are few.
const CONNECTIONS: usize = 100;
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What is served.
pub(crate) struct Served {
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    /// The configuration, as JSON.
    pub(crate) configuration: String,
    pub(crate) delegated: Delegated,
}

type Answer = Response<Full<Bytes>>;

/// Serves until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    served: Arc<Served>,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, most likely.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (acceptor, served) = (acceptor.clone(), served.clone());
        tokio::spawn(async move {
            connection(stream, &acceptor, served).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, acceptor: &TlsAcceptor, served: Arc<Served>) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let certificates: Arc<[CertificateDer<'static>]> = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|one| one.clone().into_owned())
        .collect();
    let service = service_fn(move |request: Request<Incoming>| {
        let (served, certificates) = (served.clone(), certificates.clone());
        async move { Ok::<_, Infallible>(served.answer(&request, &certificates).await) }
    });
    if let Err(error) =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
    {
        tracing::debug!(%error, "a connection to the secure port ended");
    }
}

impl Served {
    async fn answer(&self, request: &Request<Incoming>, certificates: &[CertificateDer<'static>]) -> Answer {
        match self
            .delegated
            .check(request.method(), request.uri().path(), request.headers(), certificates)
            .await
        {
            Ok(()) => {}
            Err(Denial::Unauthenticated) => return text(StatusCode::UNAUTHORIZED, "Unauthorized\n".into()),
            Err(Denial::Forbidden(why)) => return text(StatusCode::FORBIDDEN, format!("Forbidden: {why}\n")),
            Err(Denial::Unknown(why)) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".into());
        }
        let verbose = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
        match request.uri().path() {
            "/healthz" | "/livez" => report(&self.health.livez(), verbose),
            "/readyz" => report(&self.health.readyz(), verbose),
            "/metrics" => {
                let mut answer = text(StatusCode::OK, self.metrics.encode());
                let format = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                answer.headers_mut().insert(CONTENT_TYPE, format);
                answer
            }
            "/configz" => {
                let mut answer = text(StatusCode::OK, self.configuration.clone());
                answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
                answer
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n".into()),
        }
    }
}

fn report(report: &Report, verbose: bool) -> Answer {
    let status = if report.ok { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    text(status, if verbose || !report.ok { report.verbose() } else { report.brief() })
}

fn text(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}
