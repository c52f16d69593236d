//! HTTP endpoints for health checks, metrics and profiles.
//!
//! ```text
//!  /healthz, /livez, /readyz   named checks; ?verbose lists them, ?exclude=NAME skips one, /NAME runs one
//!  /metrics                    the Prometheus text format
//!  /debug/setpoint             what the controllers are doing; on loopback addresses, or behind an authorization
//!  /debug/pprof/profile        CPU, sampled for ?seconds=N (30); with the feature `pprof`
//!  /debug/pprof/heap           heap memory: caches by kind, unless the binary provides more
//! ```
//!
//! [`Operations`] computes the responses and needs no socket. [`Operations::serve`] is a listener for programs without
//! one.

#[cfg(feature = "pprof")]
mod cpu;
mod profile;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use setpoint_clock::Clock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use profile::Profile;

use crate::Context;
use crate::health::{Health, Report};
use crate::introspection;
use crate::metrics::{self, Metrics};

/// A function that produces a heap profile.
///
/// ```
/// use setpoint::serve::{Heap, Profile};
/// let heap: Heap = std::sync::Arc::new(|| Profile::new("inuse_space", "bytes"));
/// ```
pub type Heap = Arc<dyn Fn() -> Profile + Send + Sync>;

/// The handler of requests for health checks, metrics and profiles. Cheap to clone.
///
/// ```
/// # fn example(manager: setpoint::Manager) {
/// use setpoint::serve::Operations;
/// let operations = Operations::of(manager.context());
/// # async fn serve(operations: Operations, listener: tokio::net::TcpListener, stop: tokio_util::sync::CancellationToken) {
/// operations.serve(listener, stop).await;
/// # }
/// # }
/// ```
#[derive(Clone)]
pub struct Operations {
    health: Health,
    metrics: Metrics,
    clock: Clock,
    heap: Heap,
    /// Whether the introspection API is served.
    introspects: bool,
}

/// The longest CPU profile in seconds. Proxies cut off requests that take longer.
const MAX_PROFILE: u64 = 300;
const DEFAULT_PROFILE: u64 = 30;

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

type Answer = Response<Full<Bytes>>;

impl Operations {
    /// Serves the health checks, metrics and caches of a manager's context.
    pub fn of(context: &Context) -> Self {
        let Context { health, metrics, runtime, informers, .. } = context;
        let informers = informers.clone();
        let heap: Heap = Arc::new(move || crate::manager::heap(&informers));
        Self {
            health: health.clone(),
            metrics: metrics.clone(),
            clock: runtime.clock.clone(),
            heap,
            introspects: true,
        }
    }

    /// Returns the heap profile.
    pub fn heap(&self) -> Profile {
        (self.heap)()
    }

    /// Replaces the heap profile, which by default covers only the caches. For example, an allocator can provide a
    /// complete one.
    pub fn with_heap(self, heap: Heap) -> Self {
        Self { heap, ..self }
    }

    /// Handles a request. Its body is ignored.
    pub async fn handle<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
        }
        let path = request.uri().path().trim_end_matches('/');
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        match path {
            "/metrics" => with_type(StatusCode::OK, metrics::CONTENT_TYPE, self.metrics.encode()),
            path if path == introspection::PATH || path.starts_with("/debug/setpoint/") => {
                self.introspection(path, &query)
            }
            "/debug/pprof" => text(StatusCode::OK, "profile\nheap\n"),
            "/debug/pprof/profile" => self.cpu_profile(&query).await,
            "/debug/pprof/heap" => with_type(StatusCode::OK, BINARY, self.heap().encode()),
            path => self.checks(path, &query),
        }
    }

    fn introspection(&self, path: &str, query: &[(String, String)]) -> Answer {
        if !self.introspects {
            let why =
                "the introspection API is only served on loopback addresses, or behind an authorization\n";
            return text(StatusCode::FORBIDDEN, why);
        }
        let query: Vec<(&str, &str)> =
            query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match self.metrics.introspection().handle(path, &query) {
            Some(answer) => with_type(StatusCode::OK, "application/json", answer.to_string()),
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn checks(&self, path: &str, query: &[(String, String)]) -> Answer {
        let (endpoint, one) =
            path.trim_start_matches('/').split_once('/').unwrap_or((&path[path.len().min(1)..], ""));
        let report = match endpoint {
            "healthz" => self.health.healthz(),
            "livez" => self.health.livez(),
            "readyz" => self.health.readyz(),
            _ => return text(StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        let excluded = query.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str());
        let report = if one.is_empty() { Some(report.without(excluded)) } else { report.only(one) };
        match report {
            Some(report) => health(&report, query.iter().any(|(name, _)| name == "verbose")),
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn cpu_profile(&self, query: &[(String, String)]) -> Answer {
        let given = query.iter().find(|(name, _)| name == "seconds").map(|(_, value)| value.parse::<u64>());
        let seconds = match given {
            None => DEFAULT_PROFILE,
            Some(Ok(seconds)) if (1..=MAX_PROFILE).contains(&seconds) => seconds,
            Some(_) => {
                let expected = format!("seconds: expected a whole number from 1 to {MAX_PROFILE}\n");
                return text(StatusCode::BAD_REQUEST, expected);
            }
        };
        self.sample_cpu(Duration::from_secs(seconds)).await
    }

    #[cfg(feature = "pprof")]
    async fn sample_cpu(&self, duration: Duration) -> Answer {
        match cpu::profile(&self.clock, duration).await {
            Ok(profile) => with_type(StatusCode::OK, BINARY, profile.encode()),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why + "\n"),
        }
    }

    #[cfg(not(feature = "pprof"))]
    async fn sample_cpu(&self, _: Duration) -> Answer {
        let why = "CPU profiles need the feature pprof, which this program is built without\n";
        text(StatusCode::NOT_IMPLEMENTED, why)
    }

    /// Serves requests on a listener until `stop` is cancelled, then finishes those in progress.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        // Requests are not authorized here, and responses name objects.
        let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let served = Self { introspects: self.introspects && is_local, ..self };
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    served.clock.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let operations = served.clone();
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let operations = operations.clone();
                async move { Ok::<_, Infallible>(operations.handle(&request).await) }
            });
            let builder = Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended early");
                }
            });
        }
        graceful.shutdown().await;
    }
}

fn health(report: &Report, verbose: bool) -> Answer {
    let status = if report.ok { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    text(status, if verbose { report.verbose() } else { report.brief() })
}

fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    with_type(status, TEXT, body.into())
}

fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
