//! Forwards requests to nodes, pods and Services, and their responses to clients.
//!
//! Invariants:
//! - Bodies are streamed in both directions. Neither side is read faster than the other can write.
//! - The forwarded request and the client's request end together.
//! - The client's credentials are not forwarded ([`headers`]).

pub(crate) mod escape;
pub(crate) mod headers;
mod html;
mod rewrite;
mod url;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyStream;
use hyper::body::Incoming;
use setpoint_clock::Clock;
use setpoint_webhook::{RequestBody, Transport, no_body};

use self::html::Page;
pub(crate) use self::url::Rewrite;
use crate::body::{Aborted, Body, Frames};
use crate::header;
use crate::status::Status;
use crate::tunnel::{IDLE, Idle, Tunnel};

/// Time limit for forwarding the error response to an upgrade, as in v1.34.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);

/// The destination of a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) scheme: &'static str,
    /// Host and port.
    pub(crate) host: String,
    /// The decoded path.
    pub(crate) path: String,
    /// The encoded query.
    pub(crate) query: String,
}

impl Location {
    /// The URL, as Go writes it.
    pub(crate) fn url(&self) -> String {
        let Self { scheme, host, path, query } = self;
        let separator = if query.is_empty() { "" } else { "?" };
        format!("{scheme}://{host}{}{separator}{query}", escape::path(path))
    }

    fn uri(&self) -> Result<Uri, String> {
        self.url().parse().map_err(|why| format!("parse {:?}: {why}", self.url()))
    }

    /// Builds a request to this destination.
    pub(crate) fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, String> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.uri()?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// A client's request.
pub(crate) struct Original<'a> {
    pub(crate) method: &'a Method,
    /// The decoded path.
    pub(crate) path: Cow<'a, str>,
    /// The query, as the client sent it.
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// The client's address, unless it is part of this process.
    pub(crate) client: Option<IpAddr>,
}

/// Forwards a request. `location` has the path that follows the proxy's.
pub(crate) async fn forward(
    transport: &Transport,
    original: &Original<'_>,
    mut location: Location,
    body: RequestBody,
    clock: &Clock,
) -> Result<Response<Body>, Status> {
    if headers::is_upgrade(original.headers) {
        // As in v1.34, without a query.
        return upgrade(transport, original, &location, Idle::new(clock.clone(), IDLE)).await;
    }
    original.query.clone_into(&mut location.query);
    let suffix = location.path.clone();
    let ends_in_slash = original.path.ends_with('/');
    if ends_in_slash && !location.path.ends_with('/') {
        location.path.push('/');
    }
    if location.path.is_empty() && matches!(*original.method, Method::GET | Method::HEAD) {
        return Ok(to_root(original));
    }
    let suffix = if ends_in_slash && !suffix.ends_with('/') { format!("{suffix}/") } else { suffix };
    let prefix = original.path.strip_suffix(&*suffix).unwrap_or(&original.path);
    let slash = if location.path.ends_with('/') { "/" } else { "" };
    let uri = escape::join(prefix, &escape::path(&location.path)) + slash;
    let sent = headers::of_request(original.headers, original.client, &uri);
    let unreachable = |why: &str| Status::unavailable(format!("error trying to reach service: {why}"));
    let request = location.request(original.method.clone(), sent, body).map_err(|why| unreachable(&why))?;
    let response = transport.send(request).await.map_err(|why| unreachable(&why.0))?;
    let rewrite = Rewrite {
        prefix: prefix.to_owned(),
        source: location.host,
        host: header::text(original.headers, &HOST).to_owned(),
        named: None,
    };
    passed_on(response, rewrite)
}

/// Redirects to the path with a trailing slash, because links on the root page are relative to it.
fn to_root(original: &Original<'_>) -> Response<Body> {
    let separator = if original.query.is_empty() { "" } else { "?" };
    let location = format!("{}/{separator}{}", escape::path(&original.path), original.query);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Converts a response to the client's.
fn passed_on(response: Response<Incoming>, rewrite: Rewrite) -> Result<Response<Body>, Status> {
    let (mut head, body) = response.into_parts();
    if head.status.is_informational() {
        // The client would read what follows as its next response.
        return Err(Status::unknown(unrequested_switch(&head.headers)));
    }
    head.extensions = http::Extensions::new();
    head.version = http::Version::HTTP_11;
    head.headers = headers::of_response(head.headers);
    if let Some(location) = head.headers.get(LOCATION).filter(|location| !location.is_empty()) {
        let location = rewritten_location(location, &rewrite)?;
        head.headers.insert(LOCATION, location);
        return Ok(Response::from_parts(head, streamed(body)));
    }
    let body =
        if is_html(&head.headers) { with_links(&mut head.headers, body, rewrite) } else { streamed(body) };
    Ok(Response::from_parts(head, body))
}

/// The error for a backend that switched protocols unasked, as in v1.34.
pub(crate) fn unrequested_switch(headers: &HeaderMap) -> String {
    let protocol = header::text(headers, &UPGRADE);
    format!("backend tried to switch protocol {protocol:?} when \"\" was requested")
}

/// Whether a response is a page.
pub(crate) fn is_html(headers: &HeaderMap) -> bool {
    let media_type = header::text(headers, &CONTENT_TYPE).split(';').next().unwrap_or_default();
    media_type.trim() == "text/html"
}

/// Rewrites the links of a page. Its length changes.
pub(crate) fn with_links(headers: &mut HeaderMap, body: Incoming, rewrite: Rewrite) -> Body {
    headers.remove(CONTENT_LENGTH);
    let page = Page::new(Box::new(move |url| rewrite.url(url)));
    let encoding = header::text(headers, &CONTENT_ENCODING);
    Body::frames(rewrite::rewritten(frames(body), encoding, page), None, false)
}

fn rewritten_location(location: &HeaderValue, rewrite: &Rewrite) -> Result<HeaderValue, Status> {
    let text = String::from_utf8_lossy(location.as_bytes());
    let rewritten = rewrite.url(&text).and_then(|url| HeaderValue::from_str(&url).ok());
    let why = || format!("error trying to parse Location header: parse {text:?}: invalid URL");
    rewritten.ok_or_else(|| Status::internal(why()))
}

/// Streams a body. A truncated one is truncated for the client too: it never looks complete.
pub(crate) fn streamed(body: Incoming) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let length = body.size_hint().exact();
    Body::frames(frames(body), length, false)
}

fn frames(body: Incoming) -> Frames {
    let frames = BodyStream::new(body).map(|frame| {
        frame.map_err(|error| {
            tracing::debug!(%error, "a forwarded response broke off");
            Aborted::Source
        })
    });
    frames.boxed()
}

/// Forwards a request for another protocol. Both connections then carry it, until either side ends it.
pub(crate) async fn upgrade(
    transport: &Transport,
    original: &Original<'_>,
    location: &Location,
    idle: Idle,
) -> Result<Response<Body>, Status> {
    let sent = headers::of_upgrade(original.headers, original.client);
    let request = location.request(original.method.clone(), sent, no_body()).map_err(Status::unknown)?;
    let mut response = transport.upgrade(request).await.map_err(|why| Status::unknown(why.0))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return not_upgraded(response);
    }
    let tunnel = Tunnel::new(hyper::upgrade::on(&mut response), idle);
    let mut switched = Response::new(Body::empty());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = std::mem::take(response.headers_mut());
    switched.extensions_mut().insert(tunnel);
    Ok(switched)
}

/// Forwards the error response of a backend that refused an upgrade.
pub(crate) fn not_upgraded(response: Response<Incoming>) -> Result<Response<Body>, Status> {
    let code = response.status().as_u16();
    if code < 400 {
        return Err(Status::unknown(format!("invalid upgrade response: status code {code}")));
    }
    let (mut head, body) = response.into_parts();
    head.extensions = http::Extensions::new();
    head.headers = headers::of_response(head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let body = Body::frames(frames(body), None, false).until(tokio::time::sleep(ERROR_TIMEOUT));
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_written_as_go_does() {
        let location = Location {
            scheme: "https",
            host: "[2001:db8::1]:10250".into(),
            path: "/exec/ns/a b/c".into(),
            query: "command=sh".into(),
        };
        assert_eq!(location.url(), "https://[2001:db8::1]:10250/exec/ns/a%20b/c?command=sh");
        assert!(location.uri().is_ok());
        let nonsense = Location { host: "a b:1".into(), ..location };
        assert!(nonsense.uri().is_err());
    }
}
