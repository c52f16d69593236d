//! Request deadlines. Watches and streams to pods have none; all other requests get the server's limit
//! (`--request-timeout`), or less if the client asks for it. Handlers of writes have a limit of their own.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode, Uri};

use crate::body::Body;
use crate::kind::Verb;
use crate::query::Query;
use crate::request::Target;
use crate::status::Status;

/// Subresources whose requests are long-running.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// How long the handlers of writes may take, as in v1.34. Those of lists and of deletions of collections have no such limit.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(34);

/// The time limits of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Limits {
    /// Until the response; `None` if it is long-running.
    pub(super) response: Option<Duration>,
    /// For the handler; `None` if it has no limit of its own.
    pub(super) handler: Option<Duration>,
}

/// Returns a request's time limits.
pub(super) fn limits(method: &Method, uri: &Uri, limit: Duration) -> Result<Limits, Status> {
    let query = Query::parse(uri.query().unwrap_or(""));
    // A path that cannot be decoded is rejected later, after authentication.
    let target = Target::parse(method, uri.path(), &query).ok();
    if target.as_ref().is_some_and(is_long_running) {
        return Ok(Limits::default());
    }
    let is_write = target.as_ref().is_some_and(is_write);
    let response = Some(response_timeout(&query, limit)?);
    Ok(Limits { response, handler: is_write.then_some(HANDLER_TIMEOUT) })
}

fn response_timeout(query: &Query<'_>, limit: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(limit) };
    let rejected = |why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}"));
    let asked = setpoint_cron::duration(text).map_err(rejected)?;
    Ok(if asked.is_zero() || text.starts_with('-') { limit } else { asked.min(limit) })
}

/// Whether a request writes one object.
fn is_write(target: &Target<'_>) -> bool {
    let verb = target.resource.as_ref().and_then(|resource| resource.verb);
    matches!(verb, Some(Verb::Create | Verb::Update | Verb::Patch | Verb::Delete))
}

/// Whether a request lasts until either side ends it.
pub(crate) fn is_long_running(target: &Target<'_>) -> bool {
    target.resource.as_ref().is_some_and(|resource| {
        let subresource = resource.subresource.as_deref();
        resource.verb == Some(Verb::Watch) || subresource.is_some_and(|name| STREAMS.contains(&name))
    })
}

/// Builds the error of a handler that took too long.
pub(crate) fn exceeded() -> Status {
    Status::timeout("request did not complete within requested timeout - context deadline exceeded", 0)
}

/// Builds the response to a request whose time is up. As in v1.34 it does not come from a handler, so it is not in the form
/// that the client asked for.
pub(super) fn page() -> Response<Body> {
    let status = Status::timeout("request did not complete within the allotted timeout", 0).without_kind();
    let mut text = status.to_bytes().to_vec();
    text.push(b'\n');
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
