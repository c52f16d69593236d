//! Forwards requests to extension API servers, and their responses to clients.
//!
//! Invariants:
//! - Bodies are streamed in both directions. Neither side is read faster than the other can write.
//! - The request to the extension server and the client's request end together.
//! - A truncated response is truncated for the client too: it never looks complete.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONNECTION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyStream;
use hyper::body::Incoming;
use setpoint_clock::Instant;
use setpoint_webhook::{RequestBody, Transport};
use tokio::time::timeout_at;

use super::services::{ApiService, Remote};
use super::{Aggregation, headers};
use crate::auth::User;
use crate::body::{Aborted, Body};
use crate::health;
use crate::proxy::headers::{is_upgrade, of_response};
use crate::proxy::{Rewrite, escape, is_html, unrequested_switch, with_links};
use crate::query::Query;
use crate::tunnel::{IDLE, Idle, Tunnel};

/// How long discovery documents may take, as in v1.34: clients read those of all groups before they do anything else.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const REDIRECTED: &str = "the backend attempted to redirect this request, which is not permitted";

/// A request to forward.
pub(crate) struct Forward<'a> {
    pub(crate) method: &'a Method,
    /// The decoded path.
    pub(crate) path: &'a str,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a User,
    /// The client's address, unless it is part of this process.
    pub(crate) client: Option<IpAddr>,
    pub(crate) audit_id: Option<&'a HeaderValue>,
    /// Whether it is for a discovery document.
    pub(crate) is_discovery: bool,
    /// Whether the response lasts until either side ends it.
    pub(crate) is_long_running: bool,
}

/// An error response.
type Refusal = Box<Response<Body>>;

impl Aggregation {
    /// Forwards a request to the extension API server of an APIService. Errors are plain text, as in v1.34.
    pub(crate) async fn forward(
        &self,
        service: &ApiService,
        request: &Forward<'_>,
        body: RequestBody,
    ) -> Response<Body> {
        self.try_forward(service, request, body).await.unwrap_or_else(|refusal| *refusal)
    }

    async fn try_forward(
        &self,
        service: &ApiService,
        request: &Forward<'_>,
        body: RequestBody,
    ) -> Result<Response<Body>, Refusal> {
        let remote = service.remote.as_ref().filter(|_| service.is_available).ok_or_else(unavailable)?;
        let transport = self.backends.transport(&service.name, remote);
        let transport = transport.map_err(|why| error(StatusCode::INTERNAL_SERVER_ERROR, &why))?;
        let host = self.backends.resolve(remote).await.map_err(|why| {
            tracing::debug!(service = remote.shown(), %why, "cannot resolve the Service of an APIService");
            unavailable()
        })?;
        let outgoing = outgoing(request, &host, body).map_err(|why| unreachable_because(&why))?;
        if is_upgrade(request.headers) {
            let response = transport.upgrade(outgoing).await;
            let response = response.map_err(|why| error(StatusCode::SERVICE_UNAVAILABLE, &why.0))?;
            return upgraded(response, Idle::new(self.clock.clone(), IDLE));
        }
        let end = request.is_discovery.then(|| self.clock.instant() + DISCOVERY_TIMEOUT);
        let response = sent(&transport, outgoing, end, request.is_long_running).await?;
        let response = self.received(response, &host, request.is_long_running)?;
        Ok(match end {
            Some(end) => response.map(|body| body.until(tokio::time::sleep_until(end))),
            None => response,
        })
    }

    /// Converts a response to the client's.
    fn received(
        &self,
        response: Response<Incoming>,
        host: &str,
        is_long_running: bool,
    ) -> Result<Response<Body>, Refusal> {
        let (mut head, body) = response.into_parts();
        if head.status.is_informational() {
            // The client did not request an upgrade, and would read what follows as its next response.
            return Err(error(StatusCode::SERVICE_UNAVAILABLE, &unrequested_switch(&head.headers)));
        }
        if let Some(location) = head.headers.get(LOCATION) {
            if head.status.is_redirection() && self.rejects_redirects {
                return Err(redirected());
            }
            let location = rewritten(location, host).map_err(|why| unparsable(&why))?;
            head.headers.insert(LOCATION, location);
        }
        head.headers = of_response(head.headers);
        head.extensions = http::Extensions::new();
        head.version = http::Version::HTTP_11;
        let body = match is_html(&head.headers) && !head.headers.contains_key(LOCATION) {
            true => with_links(&mut head.headers, body, to_backend(host)),
            false => streamed(body, is_long_running),
        };
        Ok(Response::from_parts(head, body))
    }
}

/// As in v1.34, links in pages are rewritten to the extension server's own address.
fn to_backend(host: &str) -> Rewrite {
    let host = host.to_owned();
    Rewrite { prefix: String::new(), source: host.clone(), host: host.clone(), named: Some(host) }
}

/// Sends a request, and waits for the response until `end`.
async fn sent(
    transport: &Transport,
    outgoing: Request<RequestBody>,
    end: Option<Instant>,
    is_long_running: bool,
) -> Result<Response<Incoming>, Refusal> {
    let sent = match end {
        Some(end) => timeout_at(end, transport.send(outgoing)).await,
        None if is_long_running => Ok(transport.send_long_running(outgoing).await),
        None => Ok(transport.send(outgoing).await),
    };
    match sent {
        Ok(response) => response.map_err(|why| unreachable_because(&why.0)),
        Err(_) => Err(unreachable_because("context deadline exceeded")),
    }
}

pub(super) fn outgoing(
    request: &Forward<'_>,
    host: &str,
    body: RequestBody,
) -> Result<Request<RequestBody>, String> {
    let (path, query) = (escape::path(request.path), escape::query(request.query.pairs()));
    // A trailing slash is kept.
    let uri = escape::join("/", &path) + if path.ends_with('/') { "/" } else { "" };
    let (client, audit_id) = (request.client, request.audit_id);
    let route = headers::Route { host, uri: &uri, client, audit_id };
    let separator = if query.is_empty() { "" } else { "?" };
    let target: Uri =
        format!("https://{host}{path}{separator}{query}").parse().map_err(|why| format!("{why}"))?;
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = headers::of_request(request.headers, request.user, &route)?;
    Ok(outgoing)
}

/// Streams a body. A body without a length is complete at its end, unless it belongs to a watch.
fn streamed(body: Incoming, is_long_running: bool) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let length = body.size_hint().exact();
    let frames = BodyStream::new(body).map(|frame| {
        frame.map_err(|error| {
            tracing::debug!(%error, "a forwarded response broke off");
            Aborted::Source
        })
    });
    Body::frames(frames.boxed(), length, is_long_running && length.is_none())
}

/// Converts the response to a request for another protocol.
fn upgraded(mut response: Response<Incoming>, idle: Idle) -> Result<Response<Body>, Refusal> {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let tunnel = Tunnel::new(hyper::upgrade::on(&mut response), idle);
        let mut switched = Response::new(Body::empty());
        *switched.status_mut() = status;
        *switched.headers_mut() = std::mem::take(response.headers_mut());
        switched.extensions_mut().insert(tunnel);
        return Ok(switched);
    }
    if status.as_u16() < 400 {
        let why = format!("invalid upgrade response: status code {}", status.as_u16());
        return Err(error(StatusCode::SERVICE_UNAVAILABLE, &why));
    }
    let (mut head, body) = response.into_parts();
    head.headers = of_response(head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    head.extensions = http::Extensions::new();
    Ok(Response::from_parts(head, streamed(body, false)))
}

/// Returns the target of a redirect through the proxy: the extension server, at the address that was dialed.
fn rewritten(location: &HeaderValue, host: &str) -> Result<HeaderValue, String> {
    let text = location.to_str().map_err(|why| why.to_string())?;
    let parsed: Uri = text.parse().map_err(|why: http::uri::InvalidUri| why.to_string())?;
    let is_own = parsed.authority().is_none_or(|authority| authority.as_str() == host);
    let path = parsed.path_and_query().map_or("", |path| path.as_str());
    match is_own && path.starts_with('/') && (parsed.authority().is_some() || text.starts_with('/')) {
        true => HeaderValue::from_str(&format!("https://{host}{path}")).map_err(|why| why.to_string()),
        false => Ok(location.clone()),
    }
}

fn error(code: StatusCode, why: &str) -> Refusal {
    Box::new(health::text(code, format!("{why}\n")))
}

fn unavailable() -> Refusal {
    error(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
}

fn unreachable_because(why: &str) -> Refusal {
    error(StatusCode::SERVICE_UNAVAILABLE, &format!("error trying to reach service: {why}"))
}

fn unparsable(why: &str) -> Refusal {
    let text = format!("Internal error occurred: error trying to parse Location header: {why}");
    error(StatusCode::SERVICE_UNAVAILABLE, &text)
}

fn redirected() -> Refusal {
    let mut response = Response::new(Body::full(Bytes::from_static(REDIRECTED.as_bytes())));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Box::new(response)
}

impl Remote {
    /// The Service and its port, for logs.
    pub(super) fn shown(&self) -> String {
        format!("{}/{}:{}", self.service.namespace, self.service.name, self.service.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_within_the_server_names_the_server() {
        for (location, expected) in [
            ("/apis/x", "https://192.0.2.1:443/apis/x"),
            ("https://192.0.2.1:443/a?b", "https://192.0.2.1:443/a?b"),
            ("https://elsewhere.example/a", "https://elsewhere.example/a"),
            ("relative", "relative"),
        ] {
            let rewritten = rewritten(&HeaderValue::from_str(location).unwrap(), "192.0.2.1:443").unwrap();
            assert_eq!(rewritten, expected, "{location}");
        }
    }
}
