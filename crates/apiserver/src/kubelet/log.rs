//! Container logs: streamed as the kubelet sends them.

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyStream, Limited};
use hyper::body::Incoming;
use setpoint_webhook::{Transport, no_body};

use super::AGENT;
use crate::body::Body;
use crate::proxy::Location;
use crate::status::{Named, Status};

/// How much of an error's text is read, as in v1.34.
const ERROR_BYTES: usize = 50_000;

/// Requests logs from a kubelet.
pub(crate) async fn read(
    transport: &Transport,
    location: &Location,
    pod: &str,
) -> Result<Response<Body>, Status> {
    let url = location.url();
    let failed = |why: &str| Status::unknown(format!("Get {url:?}: {why}"));
    let headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
    let request = location.request(Method::GET, headers, no_body());
    let request = request.map_err(|why| failed(&why))?;
    let response = transport.send(request).await.map_err(|why| failed(&why.0))?;
    let code = response.status();
    if is_redirect(&response) {
        return Err(failed("redirects forbidden"));
    }
    if !(200..=206).contains(&code.as_u16()) {
        return Err(refused(code, response.into_body(), pod).await);
    }
    let mut answer = Response::new(streamed(response.into_body()));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(answer)
}

fn is_redirect(response: &Response<Incoming>) -> bool {
    let follows = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    follows && response.headers().contains_key(http::header::LOCATION)
}

/// Streams logs to the client. As in v1.34, a truncated stream looks complete.
fn streamed(body: Incoming) -> Body {
    let frames = BodyStream::new(body).take_while(|frame| std::future::ready(frame.is_ok()));
    let pieces =
        frames.filter_map(|frame| std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok())));
    Body::stream(pieces, None)
}

/// Converts the error of a kubelet.
async fn refused(code: StatusCode, body: Incoming, pod: &str) -> Status {
    let text = error_text(body).await;
    match code {
        StatusCode::INTERNAL_SERVER_ERROR => Status::internal(text),
        StatusCode::BAD_REQUEST => Status::bad_request(text),
        code => Status::of_server(code.as_u16(), Named { group: "", resource: "pods/log" }, pod, &text),
    }
}

/// Reads the start of a text.
pub(super) async fn error_text(body: Incoming) -> String {
    let mut frames = BodyStream::new(Limited::new(body, ERROR_BYTES));
    let mut text = Vec::new();
    while let Some(Ok(frame)) = frames.next().await {
        text.extend_from_slice(&frame.into_data().unwrap_or_else(|_| Bytes::new()));
    }
    String::from_utf8_lossy(&text).into_owned()
}
