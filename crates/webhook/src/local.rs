//! Servers on this machine, called from the virtual time of a test.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};

use crate::dial::Tcp;
use crate::in_process::json_response;
use crate::tls::TlsSettings;
use crate::transport::{RequestBody, SendError, Transport};

/// How long a server may take, in real time: as long as a webhook may at most.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response: more than the API server accepts from a webhook.
const RESPONSE_BYTES: usize = 32 << 20;

/// Forwards a request to a server on this machine, such as `https://127.0.0.1:9443`. Its certificate is not verified.
/// Without a response from it the response is 502, with the reason.
///
/// Virtual time stands still meanwhile: the request is sent by a thread of its own, which the paused clock of a runtime
/// waits for.
pub async fn forward(origin: Uri, request: Request<Bytes>) -> Response<Full<Bytes>> {
    #[allow(clippy::disallowed_methods, reason = "another process is outside of the simulation in any case")]
    let sending = tokio::task::spawn_blocking(move || send_blocking(&origin, request));
    let sent = sending.await.unwrap_or_else(|why| Err(failed(&why)));
    sent.unwrap_or_else(|why| json_response(502, &why.0.into()))
}

fn send_blocking(origin: &Uri, request: Request<Bytes>) -> Result<Response<Full<Bytes>>, SendError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| failed(&why))?;
    runtime.block_on(async {
        let sent = tokio::time::timeout(TIMEOUT, send(origin, request)).await;
        sent.unwrap_or_else(|_| Err(failed(&format!("{origin} has not responded within {TIMEOUT:?}"))))
    })
}

async fn send(origin: &Uri, request: Request<Bytes>) -> Result<Response<Full<Bytes>>, SendError> {
    let tls = TlsSettings { is_insecure: true, http1_only: true, ..TlsSettings::default() };
    let transport = Transport::new(&tls, Arc::new(Tcp)).map_err(|why| failed(&why))?;
    let (mut head, body) = request.into_parts();
    let mut to = origin.clone().into_parts();
    to.path_and_query = head.uri.path_and_query().cloned().or(to.path_and_query);
    head.uri = Uri::from_parts(to).map_err(|why| failed(&why))?;
    head.headers.remove(header::HOST);
    let body: RequestBody = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let (mut head, body) = transport.send(Request::from_parts(head, body)).await?.into_parts();
    let body = Limited::new(body, RESPONSE_BYTES).collect().await.map_err(|why| failed(&why))?;
    // The body is sent on with a length of its own.
    head.headers.remove(header::TRANSFER_ENCODING);
    head.extensions = http::Extensions::new();
    Ok(Response::from_parts(head, Full::new(body.to_bytes())))
}

fn failed(why: &dyn std::fmt::Display) -> SendError {
    SendError(why.to_string())
}
