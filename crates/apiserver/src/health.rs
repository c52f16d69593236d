//! Whether the server is well: `/livez`, `/readyz`, `/healthz`, and what it measures.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use crate::body::Body;
use crate::query::Query;
use crate::request::Target;
use crate::route;
use crate::server::Server;

/// One thing to look at.
struct Check {
    name: &'static str,
    /// A server that is stopping is alive, but not ready.
    only_ready: bool,
    is_well: fn(&Server) -> bool,
}

const CHECKS: [Check; 4] = [
    Check { name: "ping", only_ready: false, is_well: |_| true },
    Check { name: "log", only_ready: false, is_well: |_| true },
    Check { name: "etcd", only_ready: false, is_well: |server| server.store.revision() > 0 },
    Check {
        name: "shutdown",
        only_ready: true,
        is_well: |server| !server.stopping.is_cancelled() && !server.closing.is_cancelled(),
    },
];

/// A plain text answer.
pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Measurements in the text format of Prometheus.
pub(crate) fn measurements(measured: String) -> Response<Body> {
    let mut response = text(StatusCode::OK, measured);
    let media_type =
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

pub(crate) fn answer(server: &Server, target: &Target<'_>, query: &Query<'_>) -> Response<Body> {
    let endpoint = target.segment(0).unwrap_or("");
    let checks = || CHECKS.iter().filter(|check| !check.only_ready || endpoint == "readyz");
    match (target.segment(1), target.segments.len()) {
        (None, _) => answer_all(server, endpoint, &checks().collect::<Vec<_>>(), query),
        (Some(name), 2) => match checks().find(|check| check.name == name) {
            Some(check) if (check.is_well)(server) => text(StatusCode::OK, "ok"),
            Some(check) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{} failed\n", check.name)),
            None => route::not_found_page(),
        },
        _ => route::not_found_page(),
    }
}

fn answer_all(server: &Server, endpoint: &str, checks: &[&Check], query: &Query<'_>) -> Response<Body> {
    let is_excluded = |check: &Check| query.all("exclude").any(|excluded| excluded == check.name);
    let is_well = checks.iter().all(|check| is_excluded(check) || (check.is_well)(server));
    if is_well && query.get("verbose").is_none() {
        return text(StatusCode::OK, "ok");
    }
    let mut lines = String::new();
    for check in checks {
        lines.push_str(&match (is_excluded(check), (check.is_well)(server)) {
            (true, _) => format!("[+]{} excluded: ok\n", check.name),
            (false, true) => format!("[+]{} ok\n", check.name),
            (false, false) => format!("[-]{} failed: reason withheld\n", check.name),
        });
    }
    for unknown in query.all("exclude").filter(|name| checks.iter().all(|check| check.name != *name)) {
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown:?}\n"));
    }
    match is_well {
        true => text(StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        false => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    }
}
