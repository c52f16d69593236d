//! Routes requests, and writes responses as a kubelet does: errors are plain text.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures::Stream;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use percent_encoding::percent_decode_str;
use tokio::sync::mpsc;

use super::{Lost, Node, Upgrade};

/// The body of a response.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An error response: a status code and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    pub(super) fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self(code, text.into())
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn internal(text: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(super) fn text(self) -> String {
        self.1
    }

    fn response(self) -> Response<Body> {
        let mut response = plain(self.1);
        *response.status_mut() = self.0;
        response
    }
}

/// A response or an error.
pub(super) type Answered = Result<Response<Body>, Refusal>;

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

fn typed(body: impl Into<Bytes>, media_type: &'static str) -> Response<Body> {
    let mut response = Response::new(full(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

pub(super) fn plain(text: impl Into<Bytes>) -> Response<Body> {
    typed(text, "text/plain; charset=utf-8")
}

pub(super) fn json(value: &serde_json::Value) -> Response<Body> {
    typed(value.to_string(), "application/json")
}

/// Returns a response with a streamed body.
pub(super) fn streamed(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Returns a response without a body.
pub(super) fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = code;
    response
}

impl Node {
    pub(super) async fn handle(
        self,
        request: Request<Incoming>,
        upgrades: mpsc::Sender<Upgrade>,
    ) -> io::Result<Response<Body>> {
        match self.server.interference.next().await {
            Some(Lost::Dropped) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Lost::Failed(code)) => {
                return Ok(empty(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)));
            }
            None => {}
        }
        Ok(self.route(request, &upgrades).await.unwrap_or_else(Refusal::response))
    }

    async fn route(&self, mut request: Request<Incoming>, upgrades: &mpsc::Sender<Upgrade>) -> Answered {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let segments: Option<Vec<String>> =
            path.split('/').filter(|segment| !segment.is_empty()).map(decoded).collect();
        let segments = segments.ok_or_else(|| Refusal::bad_request("invalid path"))?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let method = request.method().clone();
        let is_get = method == Method::GET;
        match *segments {
            ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] if is_get => Ok(plain("ok")),
            ["pods"] if is_get => Ok(json(&self.pod_list(|_| true))),
            ["runningpods"] if is_get => Ok(json(&self.pod_list(|pod| pod.status.phase == "Running"))),
            ["containerLogs", namespace, pod, container] if is_get => {
                self.container_log(namespace, pod, container, &query).await
            }
            ["stats", "summary"] if is_get => Ok(json(&self.summary())),
            ["metrics", "resource"] if is_get => Ok(plain(self.resource_metrics())),
            ["metrics"] if is_get => Ok(plain(self.metrics())),
            ["metrics", "cadvisor" | "probes" | "slis"] if is_get => Ok(plain("")),
            ["exec", namespace, pod, ref rest @ ..] if is_stream(&method) => {
                let (uid, container) = uid_and_container(rest)?;
                self.exec_request(&mut request, (namespace, pod, uid, container), &query, upgrades).await
            }
            ["attach", namespace, pod, ref rest @ ..] if is_stream(&method) => {
                let (uid, container) = uid_and_container(rest)?;
                self.attach_request(&mut request, (namespace, pod, uid, container), &query, upgrades).await
            }
            ["portForward", namespace, pod, ref rest @ ..] if is_stream(&method) && rest.len() < 2 => {
                self.forward_request(&mut request, (namespace, pod, rest.first().copied()), &query, upgrades)
                    .await
            }
            ["run", namespace, pod, ref rest @ ..] if is_stream(&method) => {
                let (uid, container) = uid_and_container(rest)?;
                self.run_request(namespace, pod, uid, container, &query).await
            }
            ["logs", ..] => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.")),
            _ => Err(Refusal::not_found("404 page not found")),
        }
    }
}

fn is_stream(method: &Method) -> bool {
    method == Method::GET || method == Method::POST
}

fn decoded(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// Reads `UID/CONTAINER` or `CONTAINER`.
fn uid_and_container<'s>(rest: &[&'s str]) -> Result<(Option<&'s str>, &'s str), Refusal> {
    match *rest {
        [container] => Ok((None, container)),
        [uid, container] => Ok((Some(uid), container)),
        _ => Err(Refusal::not_found("404 page not found")),
    }
}
