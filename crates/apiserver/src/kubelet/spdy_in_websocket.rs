//! Port-forwarding with SPDY tunnelled through a WebSocket: the tunnel is terminated here, and the kubelet sees plain
//! SPDY.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use setpoint_webhook::{Dialed, no_body};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::IDLE;
use super::streams::Request;
use super::translate::limits;
use crate::body::Body;
use crate::proxy::{headers, not_upgraded};
use crate::status::Status;
use crate::tunnel::{Idle, Tunnel};
use crate::{header, health, websocket};

/// The prefix of subprotocols that carry SPDY.
const PREFIX: &str = "SPDY/3.1+";
/// The suffix of Kubernetes' protocols.
const SUFFIX: &str = ".k8s.io";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Maximum bytes from the kubelet per message.
const MESSAGE_BYTES: usize = 32 << 10;

/// Returns the protocol inside of a subprotocol, if it carries SPDY.
pub(super) fn inner_protocol(protocol: &str) -> Option<&str> {
    protocol.strip_prefix(PREFIX).filter(|inner| inner.ends_with(SUFFIX))
}

/// Connects to the kubelet, then responds to the client.
pub(super) async fn answer(request: Request<'_>) -> Result<Response<Body>, Status> {
    let Request { original, location, kubelets, metrics, clock, .. } = request;
    let sent = spdy_headers(headers::of_upgrade(original.headers, original.client));
    let outgoing = location.request(Method::POST, sent, no_body()).map_err(Status::unknown)?;
    let upgraded = kubelets.transport()?.upgrade(outgoing).await;
    let mut response = upgraded.map_err(|why| Status::unknown(why.0))?;
    let code = response.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        metrics.tunnelled(code.as_u16());
        return not_upgraded(response);
    }
    if !is_spdy(response.headers()) {
        metrics.tunnelled(500);
        let why = "unable to upgrade: missing upgrade headers in response\n";
        return Ok(health::text(StatusCode::INTERNAL_SERVER_ERROR, why));
    }
    let chosen = format!("{PREFIX}{}", header::text(response.headers(), &STREAM_PROTOCOL).trim());
    let mut switched = match handshake(original.method, original.headers, &chosen) {
        Ok(switched) => switched,
        Err(refusal) => {
            metrics.tunnelled(500);
            return Ok(*refusal);
        }
    };
    metrics.tunnelled(101);
    let (backend, idle) = (hyper::upgrade::on(&mut response), Idle::new(clock.clone(), IDLE));
    let tunnel = Tunnel::running(move |client| async move {
        if let Ok(backend) = backend.await {
            pass(client, TokioIo::new(backend), &idle).await;
        }
    });
    switched.extensions_mut().insert(tunnel);
    Ok(switched)
}

/// Requests SPDY instead of a WebSocket.
fn spdy_headers(mut sent: HeaderMap) -> HeaderMap {
    let proposed: Vec<String> =
        websocket::first_protocols(&sent).filter_map(inner_protocol).map(str::to_owned).collect();
    for name in [SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, STREAM_PROTOCOL] {
        sent.remove(name);
    }
    sent.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    for protocol in proposed {
        sent.extend(HeaderValue::from_str(&protocol).ok().map(|protocol| (STREAM_PROTOCOL, protocol)));
    }
    sent
}

/// Whether a response switches to SPDY.
pub(super) fn is_spdy(headers: &HeaderMap) -> bool {
    let says = |name, text| header::text(headers, &name).to_ascii_lowercase().contains(text);
    says(CONNECTION, "upgrade") && says(UPGRADE, "spdy/3.1")
}

/// Answers the client's handshake, like the library used by v1.34.
fn handshake(
    method: &Method,
    headers: &HeaderMap,
    chosen: &str,
) -> Result<Response<Body>, Box<Response<Body>>> {
    let refused = |code: StatusCode| {
        let mut refusal = health::text(code, format!("{}\n", code.canonical_reason().unwrap_or_default()));
        refusal.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        Box::new(refusal)
    };
    if method != Method::GET {
        return Err(refused(StatusCode::METHOD_NOT_ALLOWED));
    }
    let key = header::text(headers, &SEC_WEBSOCKET_KEY);
    let is_key = STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16);
    if header::text(headers, &SEC_WEBSOCKET_VERSION) != "13" || !is_key {
        return Err(refused(StatusCode::BAD_REQUEST));
    }
    let is_proposed = websocket::first_protocols(headers).any(|protocol| protocol == chosen);
    Ok(websocket::switching(key, is_proposed.then_some(chosen)))
}

/// Passes bytes between a WebSocket and a kubelet, until either side ends.
async fn pass(client: Dialed, backend: impl AsyncRead + AsyncWrite, idle: &Idle) {
    let (limits, _permit) = limits();
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(limits)).await;
    let (mut to_client, from_client) = socket.split();
    let (from_backend, mut to_backend) = tokio::io::split(backend);
    tokio::select! {
        () = take_out(from_client, &mut to_backend, idle) => {}
        () = put_in(from_backend, &mut to_client, idle) => {}
        () = idle.expired() => {}
    }
    websocket::close(&mut to_client).await;
    let _ = tokio::time::timeout(super::CLOSE, to_backend.shutdown()).await;
}

async fn take_out(
    mut from: SplitStream<WebSocketStream<Dialed>>,
    to: &mut (impl AsyncWrite + Unpin),
    idle: &Idle,
) {
    while let Some(Ok(message)) = from.next().await {
        let data: Bytes = match message {
            Message::Binary(data) => data,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            // SPDY is not text.
            Message::Text(_) | Message::Close(_) => return,
        };
        if to.write_all(&data).await.is_err() || to.flush().await.is_err() {
            return;
        }
        idle.touch();
    }
}

async fn put_in(
    mut from: impl AsyncRead + Unpin,
    to: &mut SplitSink<WebSocketStream<Dialed>, Message>,
    idle: &Idle,
) {
    let mut piece = vec![0; MESSAGE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let sent: Result<(), Error> = to.send(Message::binary(piece[..count].to_vec())).await;
        if sent.is_err() {
            return;
        }
        idle.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_websocket_handshake_becomes_a_spdy_handshake() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "x"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io, other, SPDY/3.1+x"),
            ("user-agent", "kubectl"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let sent = spdy_headers(headers);
        let mut sent: Vec<_> =
            sent.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        sent.sort_unstable();
        let expected = [
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("user-agent", "kubectl"),
            ("x-stream-protocol-version", "portforward.k8s.io"),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn the_handshake_is_answered_after_the_kubelets_response() {
        let headers = |key: &str, version: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(SEC_WEBSOCKET_KEY, key.parse().unwrap());
            headers.insert(SEC_WEBSOCKET_VERSION, version.parse().unwrap());
            headers.insert(SEC_WEBSOCKET_PROTOCOL, "SPDY/3.1+portforward.k8s.io".parse().unwrap());
            headers
        };
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let code = |method, headers: HeaderMap| {
            handshake(&method, &headers, "SPDY/3.1+portforward.k8s.io")
                .map_or_else(|no| no.status(), |yes| yes.status())
        };
        assert_eq!(code(Method::GET, headers(key, "13")), 101);
        assert_eq!(code(Method::POST, headers(key, "13")), 405);
        assert_eq!(code(Method::GET, headers(key, "8")), 400);
        assert_eq!(code(Method::GET, headers("short", "13")), 400);
        let other = handshake(&Method::GET, &headers(key, "13"), "SPDY/3.1+").unwrap();
        assert!(!other.headers().contains_key(SEC_WEBSOCKET_PROTOCOL));
    }
}
