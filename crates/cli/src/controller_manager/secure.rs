//! The secure port: health, metrics, profiles and configuration, over TLS.
//!
//! Clients authenticate with a certificate, or with a token that the API server reviews. The API server also authorizes
//! them. As in kube-controller-manager, health checks need no authorization. If no certificate is configured, a
//! self-signed one is generated.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use setpoint::metrics::Metrics;
use setpoint::serve::Operations;
use setpoint_shadow::Shadow;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::connections::{self, Answer, Certificates, Limits, Port, Protocol};
use super::delegated::{Delegated, Denial};
use crate::process;

/// The state of the secure port's handler.
pub(crate) struct SecureHandler {
    pub(crate) operations: Operations,
    /// Whether profiles are served.
    pub(crate) profiling: bool,
    pub(crate) metrics: Metrics,
    /// Metrics that are not served.
    pub(crate) disabled_metrics: Vec<String>,
    /// The configuration, as JSON.
    pub(crate) configuration: String,
    pub(crate) delegated: Delegated,
    /// The report served at `/shadow`.
    pub(crate) shadow: Option<Shadow>,
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    protocol: Protocol,
    served: Arc<SecureHandler>,
    stop: CancellationToken,
) {
    let answer = move |request: Request<Incoming>, certificates: Certificates| {
        let served = served.clone();
        async move { served.answer(&request, &certificates).await }
    };
    let port = Port { acceptor, protocol, limits: Limits::default(), answer };
    connections::serve(listener, port, stop).await;
}

impl SecureHandler {
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
            "/metrics" if matches!(*request.method(), Method::GET | Method::HEAD) => {
                let all = self.metrics.encode() + &process::process_metrics();
                let mut answer = text(StatusCode::OK, without(all, &self.disabled_metrics));
                let format = http::HeaderValue::from_static(setpoint::metrics::CONTENT_TYPE);
                answer.headers_mut().insert(CONTENT_TYPE, format);
                answer
            }
            path if path.starts_with("/debug/pprof") && !self.profiling => {
                text(StatusCode::NOT_FOUND, "404 page not found\n".into())
            }
            "/configz" => json(self.configuration.clone()),
            "/shadow" if self.shadow.is_some() => self.shadow_report(request.method()),
            _ => self.operations.handle(request).await,
        }
    }

    fn shadow_report(&self, method: &Method) -> Answer {
        let report = self.shadow.as_ref().map(Shadow::report);
        match serde_json::to_string(&report) {
            _ if !matches!(*method, Method::GET | Method::HEAD) => {
                text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: expected GET\n".into())
            }
            Ok(report) => json(report),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn json(body: String) -> Answer {
    let mut answer = text(StatusCode::OK, body);
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

/// Removes some metrics from the text: their samples and their metadata.
fn without(metrics: String, disabled: &[String]) -> String {
    if disabled.is_empty() {
        return metrics;
    }
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
        assert_eq!(without(metrics.to_owned(), &["a_seconds".to_owned()]), kept);
    }
}
