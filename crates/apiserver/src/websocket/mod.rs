//! WebSockets, which browsers use to watch: the handshake, the token that comes with it, and the messages.
//!
//! A watch or a log over a WebSocket is handled like any other; its response switches protocols and carries the messages
//! as its body. The owner of the connection ([`crate::serve`]) then runs [`send`] on it. Messages from the client are
//! discarded, except for pings and close. Streams to pods talk in both directions ([`crate::kubelet`]); only their
//! handshake is here ([`accepted`]).

mod normal_close;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::stream::{BoxStream, SplitSink};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, CONTENT_TYPE, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::body::Body;
use crate::header;
use crate::health;
use normal_close::NormalClose;

/// The server's side of a WebSocket whose messages this server reads.
pub(crate) type Socket<Io> = WebSocketStream<NormalClose<Io>>;

/// A pseudo-subprotocol that carries the sender's token.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Maximum size of a message from the client: none are kept, and control frames have 125 bytes.
const RECEIVED_BYTES: usize = 64 << 10;

/// How long closing a connection may take.
const CLOSE: Duration = Duration::from_secs(5);

/// Whether a request asks for a WebSocket.
pub(crate) fn is_request(headers: &HeaderMap) -> bool {
    let is_websocket = header::text(headers, &UPGRADE).eq_ignore_ascii_case("websocket");
    is_websocket && header::text(headers, &CONNECTION).to_ascii_lowercase().contains("upgrade")
}

/// Whether a request asks for a WebSocket with a subprotocol. As in v1.34, only the first header counts.
pub(crate) fn proposes(headers: &HeaderMap, is_wanted: impl Fn(&str) -> bool) -> bool {
    is_request(headers) && first_protocols(headers).any(is_wanted)
}

/// Returns the subprotocols in the first header.
pub(crate) fn first_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    header::text(headers, &SEC_WEBSOCKET_PROTOCOL).split(',').map(str::trim)
}

/// Returns the subprotocols that a client proposes.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    header::all(headers, &SEC_WEBSOCKET_PROTOCOL).flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes the token out of a request's subprotocols. An error explains why the sender cannot be identified.
pub(crate) fn take_token(headers: &mut HeaderMap) -> Result<Option<String>, &'static str> {
    if !is_request(headers) {
        return Ok(None);
    }
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        protocols(headers).partition(|name| name.starts_with(BEARER));
    let encoded = match tokens.as_slice() {
        [] => return Ok(None),
        [only] => &only[BEARER.len()..],
        _ => return Err("multiple base64.bearer.authorization tokens specified"),
    };
    let token = URL_SAFE_NO_PAD.decode(encoded);
    let token = token.map_err(|_| "invalid base64.bearer.authorization token encoding")?;
    let token = String::from_utf8(token).map_err(|_| "invalid base64.bearer.authorization token")?;
    if token.is_empty() {
        return Ok(None);
    }
    // The token is not echoed, so another subprotocol must be.
    if others.is_empty() {
        return Err("missing additional subprotocol");
    }
    let others = HeaderValue::from_str(&others.join(",")).map_err(|_| "invalid subprotocol")?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    Ok(Some(token))
}

/// Whether the messages that follow a response are text, binary, or text that encodes binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    Text,
    Binary,
    Base64,
}

/// Responds to a WebSocket request of a watch: the handshake, then each chunk of the body as a message.
pub(crate) fn respond(headers: &HeaderMap, messages: Body, is_text: bool) -> Response<Body> {
    let key = match checked_key(headers) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    if !has_origin(headers) {
        return empty(StatusCode::FORBIDDEN);
    }
    let proposed: Vec<&str> = protocols(headers).filter(|name| !name.is_empty()).collect();
    if proposed.len() > 1 {
        return empty(StatusCode::BAD_REQUEST);
    }
    let kind = if is_text { Messages::Text } else { Messages::Binary };
    sending(switching(key, proposed.first().copied()), messages, kind)
}

/// The subprotocols of logs: of messages that go one way.
const ONE_WAY: [(&str, Messages); 3] =
    [("", Messages::Binary), ("binary.k8s.io", Messages::Binary), ("base64.binary.k8s.io", Messages::Base64)];

/// Responds to a WebSocket request for a log: an empty message, then each chunk of the body as a message.
pub(crate) fn answer_log(headers: &HeaderMap, log: Body) -> Response<Body> {
    match accepted(&Method::GET, headers, &ONE_WAY.map(|(name, _)| name)) {
        Ok((response, protocol)) => {
            let messages = ONE_WAY.iter().find(|(name, _)| *name == protocol);
            let hello = futures::stream::iter([Bytes::new()]);
            let body = Body::stream(hello.chain(log.into_stream()), None);
            sending(response, body, messages.map_or(Messages::Binary, |(_, messages)| *messages))
        }
        Err(refusal) => *refusal,
    }
}

/// Makes a response carry messages.
fn sending(response: Response<Body>, body: Body, messages: Messages) -> Response<Body> {
    let mut response = response.map(|_| body);
    response.extensions_mut().insert(messages);
    response
}

/// Checks a handshake as v1.34 does, and chooses the first subprotocol that both sides know. The response switches
/// protocols. An error is the response that refuses it.
pub(crate) fn accepted<'p>(
    method: &Method,
    headers: &HeaderMap,
    known: &[&'p str],
) -> Result<(Response<Body>, &'p str), Box<Response<Body>>> {
    if method != Method::GET {
        return Err(Box::new(health::text(StatusCode::METHOD_NOT_ALLOWED, "bad method")));
    }
    let key = checked_key(headers)?;
    let chosen = first_protocols(headers).find_map(|name| known.iter().find(|known| **known == name));
    let chosen = *chosen.ok_or_else(|| Box::new(empty(StatusCode::FORBIDDEN)))?;
    Ok((switching(key, Some(chosen)), chosen))
}

/// Checks that this server speaks the client's version of the protocol, and returns the client's key.
fn checked_key(headers: &HeaderMap) -> Result<&str, Box<Response<Body>>> {
    let key = header::text(headers, &SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(Box::new(health::text(StatusCode::BAD_REQUEST, "mismatch challenge/response")));
    }
    if header::text(headers, &SEC_WEBSOCKET_VERSION) != "13" {
        let mut refusal = health::text(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        refusal.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        refusal.headers_mut().remove(CONTENT_TYPE);
        return Err(Box::new(refusal));
    }
    Ok(key)
}

/// The response that switches protocols.
pub(crate) fn switching(key: &str, protocol: Option<&str>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        answered.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(Ok(protocol)) = protocol.map(HeaderValue::from_str) {
        answered.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// Whether the request has an Origin header. Browsers send it; v1.34 requires it from everyone.
fn has_origin(headers: &HeaderMap) -> bool {
    let origin = header::text(headers, &ORIGIN);
    origin.starts_with('/') || origin.parse::<http::Uri>().is_ok_and(|origin| origin.scheme().is_some())
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// The WebSocket on a connection, after the handshake.
pub(crate) async fn after_handshake<Io>(connection: Io, config: WebSocketConfig) -> Socket<Io>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    WebSocketStream::from_raw_socket(NormalClose::new(connection), Role::Server, Some(config)).await
}

/// Sends the body of a response after the handshake, until either side ends it.
pub(crate) async fn send<Io>(connection: Io, messages: Messages, mut pieces: BoxStream<'static, Bytes>)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(RECEIVED_BYTES))
        .max_frame_size(Some(RECEIVED_BYTES));
    let socket = after_handshake(connection, config).await;
    let (mut to_client, mut from_client) = socket.split();
    loop {
        let piece = tokio::select! {
            biased;
            received = from_client.next() => match received {
                // The answer goes out before the next ping is read: a client that pings and does not read has to stop.
                Some(Ok(Message::Ping(_))) => match to_client.flush().await {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                Some(Ok(message)) if !message.is_close() => continue,
                _ => break,
            },
            piece = pieces.next() => piece,
        };
        let Some(piece) = piece else { break };
        if to_client.send(messages.message(piece)).await.is_err() {
            return;
        }
    }
    close(&mut to_client).await;
}

/// Closes a WebSocket normally. If the client has closed it, this is the answer.
pub(crate) async fn close<Io>(sink: &mut SplitSink<WebSocketStream<Io>, Message>)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let farewell = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    let closing = async {
        // Fails if the client was first: then the answer is waiting to be sent.
        let _ = sink.send(Message::Close(Some(farewell))).await;
        sink.close().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(CLOSE, closing).await {
        tracing::debug!(%error, "a WebSocket ended early");
    }
}

impl Messages {
    fn message(self, piece: Bytes) -> Message {
        match self {
            Self::Text => String::from_utf8_lossy(&piece).into_owned().into(),
            Self::Binary => piece.into(),
            Self::Base64 => STANDARD.encode(&piece).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    const ASKING: [(&str, &str); 2] = [("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade")];

    #[test]
    fn a_token_is_taken_out_of_the_protocols() {
        let token = format!("{BEARER}c2VjcmV0");
        for (protocols, expected, left) in [
            (format!("{token}, v1"), Ok(Some("secret".into())), "v1"),
            ("v1".into(), Ok(None), "v1"),
            (token.clone(), Err("missing additional subprotocol"), token.as_str()),
            (
                format!("{BEARER}!!, v1"),
                Err("invalid base64.bearer.authorization token encoding"),
                &format!("{BEARER}!!, v1"),
            ),
        ] {
            let mut asking = headers(&ASKING);
            asking.insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
            assert_eq!(take_token(&mut asking), expected, "{protocols}");
            assert_eq!(asking[SEC_WEBSOCKET_PROTOCOL], left, "{protocols}");
        }
        let mut plain = headers(&[("sec-websocket-protocol", &format!("{token}, v1"))]);
        assert_eq!(take_token(&mut plain), Ok(None), "only on requests for a WebSocket");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_messages_is_a_normal_close() {
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(send(far, Messages::Text, futures::stream::iter([Bytes::from_static(b"x")]).boxed()));
        let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("x"));
        let Message::Close(Some(frame)) = client.next().await.unwrap().unwrap() else { panic!() };
        assert_eq!(frame.code, CloseCode::Normal);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pings_and_does_not_read_has_to_stop() {
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(send(far, Messages::Text, futures::stream::pending().boxed()));
        let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        let pinging = async {
            for _ in 0..10_000 {
                client.send(Message::Ping(Bytes::from_static(&[b'x'; 100]))).await.unwrap();
            }
        };
        let pinged = tokio::time::timeout(std::time::Duration::from_secs(60), pinging).await;
        assert!(pinged.is_err(), "its pings are no longer read");
        let mut pongs = 0;
        while let Ok(Some(Ok(_))) =
            tokio::time::timeout(std::time::Duration::from_secs(60), client.next()).await
        {
            pongs += 1;
        }
        assert!((1..100).contains(&pongs), "{pongs} pongs");
    }

    #[test]
    fn handshake_errors_match_v1_34() {
        let complete = [
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("origin", "http://localhost"),
        ];
        let answered = |name: &str, value: &str| {
            let mut asking = headers(&complete);
            match value {
                "" => _ = asking.remove(name),
                value => {
                    _ = asking
                        .insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())
                }
            }
            respond(&asking, Body::empty(), true)
        };
        for (name, value, expected) in [
            ("x", "y", 101),
            ("sec-websocket-key", "", 400),
            ("sec-websocket-version", "8", 400),
            ("origin", "", 403),
            ("origin", "null", 403),
            ("sec-websocket-protocol", "a, b", 400),
            ("sec-websocket-protocol", "a", 101),
        ] {
            assert_eq!(answered(name, value).status(), expected, "{name}: {value}");
        }
        let accepted = answered("sec-websocket-protocol", "a");
        assert_eq!(accepted.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted.headers()[SEC_WEBSOCKET_PROTOCOL], "a");
    }
}
