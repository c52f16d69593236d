//! Health endpoints `/livez`, `/readyz` and `/healthz`, and the metrics response.

use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use crate::body::Body;
use crate::query::Query;
use crate::request::Target;
use crate::route;
use crate::server::Server;

/// A check added by the embedding program. `/livez` omits it: a restart would not help.
pub struct HealthCheck {
    pub name: String,
    pub check: Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

/// A built-in check.
struct Check {
    name: &'static str,
    /// Not part of liveness: a server that is stopping is alive, but not ready.
    only_ready: bool,
    is_well: fn(&Server) -> bool,
}

const CHECKS: [Check; 4] = [
    Check { name: "ping", only_ready: false, is_well: |_| true },
    Check { name: "log", only_ready: false, is_well: |_| true },
    // The store: asked by `Any::run`, because its answer may come from another process.
    Check { name: "etcd", only_ready: false, is_well: |_| true },
    Check {
        name: "shutdown",
        only_ready: true,
        is_well: |server| !server.stopping.is_cancelled() && !server.closing.is_cancelled(),
    },
];

/// A built-in or added check.
enum Any<'a> {
    Own(&'static Check),
    Added(&'a HealthCheck),
}

impl Any<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Own(check) => check.name,
            Self::Added(check) => &check.name,
        }
    }

    async fn run(&self, server: &Server) -> Result<(), String> {
        match self {
            Self::Own(check) if check.name == "etcd" => check_store(server).await,
            Self::Own(check) if (check.is_well)(server) => Ok(()),
            Self::Own(check) => Err(format!("{} failed\n", check.name)),
            Self::Added(check) => {
                (check.check)().await.map_err(|why| format!("internal server error: {why}\n"))
            }
        }
    }
}

/// How long the store may take to answer, as in v1.34.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

async fn check_store(server: &Server) -> Result<(), String> {
    let health = server.store.health();
    tokio::select! {
        biased;
        result = health => result.map_err(|why| format!("error getting data from etcd: {why}\n")),
        () = server.clock.sleep(STORE_TIMEOUT) => {
            Err("error getting data from etcd: context deadline exceeded\n".to_owned())
        }
    }
}

/// Returns an endpoint's checks, in order.
fn checks<'a>(server: &'a Server, endpoint: &str) -> Vec<Any<'a>> {
    let own = CHECKS.iter().filter(|check| !check.only_ready || endpoint == "readyz").map(Any::Own);
    let added = server.health_checks.iter().filter(|_| endpoint != "livez").map(Any::Added);
    own.chain(added).collect()
}

/// Builds a plain text response.
pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Builds a response with a JSON document.
pub(crate) fn document(document: String) -> Response<Body> {
    let mut response = text(StatusCode::OK, document);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Builds a response in the Prometheus text format.
pub(crate) fn measurements(measured: String) -> Response<Body> {
    let mut response = text(StatusCode::OK, measured);
    let media_type =
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

pub(crate) async fn respond(server: &Server, target: &Target<'_>, query: &Query<'_>) -> Response<Body> {
    let endpoint = target.segment(0).unwrap_or("");
    let checks = checks(server, endpoint);
    match (target.segment(1), target.segments.len()) {
        (None, _) => respond_all(server, endpoint, &checks, query).await,
        (Some(name), 2) => match checks.iter().find(|check| check.name() == name) {
            Some(check) => match check.run(server).await {
                Ok(()) => text(StatusCode::OK, "ok"),
                Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why),
            },
            None => route::not_found_page(),
        },
        _ => route::not_found_page(),
    }
}

async fn respond_all(
    server: &Server,
    endpoint: &str,
    checks: &[Any<'_>],
    query: &Query<'_>,
) -> Response<Body> {
    let mut lines = String::new();
    let mut is_well = true;
    for check in checks {
        let name = check.name();
        if query.all("exclude").any(|excluded| excluded == name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if let Err(why) = check.run(server).await {
            tracing::debug!(check = name, why = why.trim_end(), "a health check failed");
            is_well = false;
            lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
        } else {
            lines.push_str(&format!("[+]{name} ok\n"));
        }
    }
    if is_well && query.get("verbose").is_none() {
        return text(StatusCode::OK, "ok");
    }
    for unknown in query.all("exclude").filter(|name| checks.iter().all(|check| check.name() != *name)) {
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown:?}\n"));
    }
    match is_well {
        true => text(StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        false => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    }
}
