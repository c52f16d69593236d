//! The secure port: health, metrics, profiles and configuration, over TLS.
//!
//! Whoever asks is known by a client certificate or by a token, which the API server is asked about; what they may
//! see the API server is asked too. Health is for everybody, as kube-controller-manager has it. Without a
//! certificate one is made that nobody else signs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use setpoint::metrics::Metrics;
use setpoint::serve::Operations;
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
    pub(crate) operations: Operations,
    /// Whether profiles may be asked for.
    pub(crate) profiling: bool,
    pub(crate) metrics: Metrics,
    /// Metrics that are not served.
    pub(crate) disabled_metrics: Vec<String>,
    /// The configuration, as JSON.
    pub(crate) configuration: String,
    pub(crate) delegated: Delegated,
}

/// How connections are spoken to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) http2: bool,
    /// The most requests at once on one connection, where that is limited.
    pub(crate) most_streams: Option<u32>,
}

type Answer = Response<Full<Bytes>>;

/// Serves until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    protocol: Protocol,
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
            connection(stream, &acceptor, protocol, served).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, acceptor: &TlsAcceptor, protocol: Protocol, served: Arc<Served>) {
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
    let mut server = auto::Builder::new(TokioExecutor::new());
    if let Some(most) = protocol.most_streams {
        server.http2().max_concurrent_streams(most);
    }
    let server = if protocol.http2 { server } else { server.http1_only() };
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
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
        match request.uri().path() {
            "/metrics" if !self.disabled_metrics.is_empty() => {
                let shown = without(&self.metrics.encode(), &self.disabled_metrics);
                let mut answer = text(StatusCode::OK, shown);
                let format = http::HeaderValue::from_static(setpoint::metrics::CONTENT_TYPE);
                answer.headers_mut().insert(CONTENT_TYPE, format);
                answer
            }
            path if path.starts_with("/debug/pprof") && !self.profiling => {
                text(StatusCode::NOT_FOUND, "404 page not found\n".into())
            }
            "/configz" => {
                let mut answer = text(StatusCode::OK, self.configuration.clone());
                answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
                answer
            }
            _ => self.operations.answer(request).await,
        }
    }
}

/// The text of metrics without some of them: their samples, and what is said about them.
fn without(metrics: &str, disabled: &[String]) -> String {
    let name = |line: &str| -> String {
        let words = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).unwrap_or(line);
        words.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let is_part = |name: &str, of: &String| {
        let rest = name.strip_prefix(of.as_str());
        rest.is_some_and(|rest| ["", "_bucket", "_sum", "_count", "_total"].contains(&rest))
    };
    let kept = metrics.lines().filter(|line| !disabled.iter().any(|one| is_part(&name(line), one)));
    kept.flat_map(|line| [line, "\n"]).collect()
}

fn text(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_metric_is_left_out_with_all_its_parts() {
        let metrics = "# HELP a_seconds A.\n# TYPE a_seconds histogram\na_seconds_bucket{le=\"1\"} 1\na_seconds_sum 1\n\
                       a_seconds_count 1\n# TYPE a_seconds_old counter\na_seconds_old 1\n# EOF\n";
        let kept = "# TYPE a_seconds_old counter\na_seconds_old 1\n# EOF\n";
        assert_eq!(without(metrics, &["a_seconds".to_owned()]), kept);
    }
}
