//! Whether the server is well: `/livez`, `/readyz`, `/healthz`.

use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use crate::body::Body;
use crate::query::Query;
use crate::request::Target;
use crate::route;

const CHECKS: [&str; 3] = ["ping", "log", "etcd"];

/// A plain text answer.
pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(crate) fn answer(target: &Target<'_>, query: &Query<'_>) -> Response<Body> {
    let name = target.segment(0).unwrap_or("");
    match (target.segment(1), target.segments.len()) {
        (None, _) => text(
            StatusCode::OK,
            if query.get("verbose").is_some() { verbose(name, query) } else { "ok".into() },
        ),
        (Some(check), 2) if CHECKS.contains(&check) => text(StatusCode::OK, "ok"),
        _ => route::not_found_page(),
    }
}

/// One line for each check, in the words of v1.34.
fn verbose(name: &str, query: &Query<'_>) -> String {
    let mut lines = String::new();
    for check in CHECKS {
        let excluded = query.all("exclude").any(|excluded| excluded == check);
        lines.push_str(&match excluded {
            true => format!("[+]{check} excluded: ok\n"),
            false => format!("[+]{check} ok\n"),
        });
    }
    for unknown in query.all("exclude").filter(|excluded| !CHECKS.contains(excluded)) {
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown:?}\n"));
    }
    lines + &format!("{name} check passed\n")
}
