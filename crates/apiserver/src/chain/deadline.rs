//! Request deadlines. Watches and streams to pods have none; all other requests get the server's limit
//! (`--request-timeout`), or less if the client asks for it.

use std::time::Duration;

use http::{Method, Uri};

use crate::kind::Verb;
use crate::query::Query;
use crate::request::Target;
use crate::status::Status;

/// Subresources whose requests are long-running.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Returns a request's timeout; `None` if it is long-running.
pub(super) fn timeout(method: &Method, uri: &Uri, limit: Duration) -> Result<Option<Duration>, Status> {
    let query = Query::parse(uri.query().unwrap_or(""));
    // A path that cannot be decoded is rejected later, after authentication.
    let is_long = Target::parse(method, uri.path(), &query).is_ok_and(|target| is_long_running(&target));
    if is_long {
        return Ok(None);
    }
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(Some(limit)) };
    let rejected = |why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}"));
    let asked = setpoint_cron::duration(text).map_err(rejected)?;
    Ok(Some(if asked.is_zero() || text.starts_with('-') { limit } else { asked.min(limit) }))
}

/// Whether a request lasts until either side ends it.
pub(crate) fn is_long_running(target: &Target<'_>) -> bool {
    target.resource.as_ref().is_some_and(|resource| {
        let subresource = resource.subresource.as_deref();
        resource.verb == Some(Verb::Watch) || subresource.is_some_and(|name| STREAMS.contains(&name))
    })
}

/// Builds the response to a request that took too long.
pub(crate) fn exceeded() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}
