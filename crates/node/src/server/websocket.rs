//! Remote commands over WebSockets: each message begins with the number of its channel.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::SplitStream;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use super::remote::Run;
use super::request::{Wanted, chosen, proposed};
use super::route::{Body, Refusal, empty};
use super::spdy::{IDLE, PIECES};
use crate::process::ClientStreams;

/// The protocols of commands. The first ones are older than version 4.
pub(super) const COMMANDS: [&str; 4] =
    ["channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// The maximum size of a message from a client, as with a kubelet. Some clients send all of stdin in one.
const MESSAGE_BYTES: usize = 32 << 20;
/// The maximum size of a message while too many others may be large.
const SMALL_MESSAGE_BYTES: usize = 1 << 20;
/// How many connections may send large messages at the same time: 8 · 32 MiB, and as much again while one is decoded.
static LARGE: Semaphore = Semaphore::const_new(8);

/// The maximum size of a message to a client: longer output is split.
const SENT_BYTES: usize = 32 << 10;
/// The maximum size of unsent data. Messages are sent one at a time, so the rest is pongs: a client that pings without
/// reading only gets a pong for its last ping.
const WAITING_BYTES: usize = 256 << 10;

/// How messages are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol {
    is_base64: bool,
    /// Whether the outcome is a `Status`.
    pub(super) has_status: bool,
}

impl Protocol {
    fn of(name: Option<&str>) -> Self {
        let name = name.unwrap_or_default();
        Self { is_base64: name.contains("base64"), has_status: name.starts_with("v4.") }
    }

    /// Encodes a message of a channel.
    pub(super) fn message(self, channel: u8, content: &[u8]) -> Message {
        match self.is_base64 {
            true => Message::text(format!("{}{}", char::from(b'0' + channel), STANDARD.encode(content))),
            false => Message::binary([&[channel], content].concat()),
        }
    }

    /// Decodes the channel and content of a message. `None` if it is malformed.
    pub(super) fn decode(self, message: &[u8]) -> Option<(u8, Bytes)> {
        let (channel, content) = message.split_first()?;
        match self.is_base64 {
            true => Some((channel.checked_sub(b'0')?, STANDARD.decode(content).ok()?.into())),
            false => Some((*channel, Bytes::copy_from_slice(content))),
        }
    }
}

/// Accepts an upgrade to a WebSocket with one of these protocols.
pub(super) fn accept(headers: &HeaderMap, protocols: &[&str]) -> Result<(Response<Body>, Protocol), Refusal> {
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_version = headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    if key.is_empty() || !is_version {
        return Err(Refusal::bad_request("missing or bad WebSocket key or version"));
    }
    let protocol = chosen(&proposed(headers, &SEC_WEBSOCKET_PROTOCOL), protocols);
    let protocol = protocol.map_err(Refusal::bad_request)?;
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let answered = response.headers_mut();
    answered.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key)) {
        answered.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(Ok(name)) = protocol.map(HeaderValue::from_str) {
        answered.insert(SEC_WEBSOCKET_PROTOCOL, name);
    }
    Ok((response, Protocol::of(protocol)))
}

/// A WebSocket, and its permit for large messages, which must live as long.
type Accepted<Io> = (WebSocketStream<Io>, Option<SemaphorePermit<'static>>);

/// Starts to send and receive messages after the handshake.
pub(super) async fn socket<Io: AsyncRead + AsyncWrite + Unpin>(io: Io) -> Accepted<Io> {
    let permit = LARGE.try_acquire().ok();
    let bytes = if permit.is_some() { MESSAGE_BYTES } else { SMALL_MESSAGE_BYTES };
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes))
        .max_frame_size(Some(bytes))
        .max_write_buffer_size(WAITING_BYTES);
    (WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await, permit)
}

/// Serves a command, until it ends or the client disconnects.
pub(super) async fn serve_command(
    io: impl AsyncRead + AsyncWrite + Unpin,
    protocol: Protocol,
    wanted: Wanted,
    run: Run,
) {
    let (mut socket, _permit) = socket(io).await;
    // An empty message signals the client that the connection is established.
    let first = if wanted.stdout {
        STDOUT
    } else if wanted.stderr {
        STDERR
    } else {
        ERROR
    };
    if socket.send(protocol.message(first, &[])).await.is_err() {
        return;
    }
    let (input, read) = mpsc::channel(PIECES);
    let ((out, mut printed), (err, mut complained)) = (mpsc::channel(PIECES), mpsc::channel(PIECES));
    let streams = ClientStreams {
        stdin: wanted.stdin.then_some(read),
        stdout: wanted.stdout.then_some(out),
        stderr: wanted.stderr.then_some(err),
        is_terminal: wanted.tty,
    };
    let (mut sender, mut receiver) = socket.split();
    let receiving = receive(&mut receiver, protocol, input);
    let sending = async {
        let mut running = std::pin::pin!(run(streams));
        let mut outcome = None;
        loop {
            let (channel, piece) = tokio::select! {
                biased;
                Some(piece) = printed.recv() => (STDOUT, piece),
                Some(piece) = complained.recv() => (STDERR, piece),
                done = &mut running, if outcome.is_none() => {
                    outcome = Some(done);
                    continue;
                }
                else => break,
            };
            for part in piece.chunks(SENT_BYTES) {
                sender.send(protocol.message(channel, part)).await.ok()?;
            }
        }
        let encoded = outcome?.encode(protocol.has_status);
        if !encoded.is_empty() {
            sender.send(protocol.message(ERROR, encoded.as_bytes())).await.ok()?;
        }
        sender.close().await.ok()
    };
    tokio::select! {
        biased;
        _ = sending => {}
        () = receiving => {}
    }
}

/// Passes a client's input to a command. Ends when the client disconnects or is idle for a long time.
async fn receive<Io: AsyncRead + AsyncWrite + Unpin>(
    messages: &mut SplitStream<WebSocketStream<Io>>,
    protocol: Protocol,
    input: mpsc::Sender<Bytes>,
) {
    while let Ok(Some(Ok(message))) = tokio::time::timeout(IDLE, messages.next()).await {
        let content = match &message {
            Message::Binary(content) => &content[..],
            Message::Text(text) => text.as_bytes(),
            Message::Close(_) => return,
            _ => continue,
        };
        if let Some((STDIN, piece)) = protocol.decode(content)
            && !piece.is_empty()
        {
            // A command that no longer reads may still be running.
            _ = input.send(piece).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::outcome::Outcome;
    use super::super::spdy::CLOSE;
    use super::*;

    #[test]
    fn messages_carry_their_channel() {
        let binary = Protocol::of(Some("v4.channel.k8s.io"));
        assert_eq!(binary.message(1, b"hi").into_data(), &b"\x01hi"[..]);
        assert_eq!(binary.decode(b"\0x"), Some((0, Bytes::from_static(b"x"))));
        assert!(binary.has_status && !Protocol::of(None).has_status);
        let text = Protocol::of(Some("base64.channel.k8s.io"));
        assert_eq!(text.message(2, b"hi").into_data(), &b"2aGk="[..]);
        assert_eq!(text.decode(b"0aGk="), Some((0, Bytes::from_static(b"hi"))));
        for malformed in [&b""[..], b"0!", b"\0aGk="] {
            assert_eq!(text.decode(malformed), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_gets_its_input_and_sends_its_output_and_outcome() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };
        let run: Run = Box::new(|mut streams: ClientStreams| {
            async move {
                let piece = streams.stdin.as_mut().expect("stdin").recv().await.expect("input");
                streams.stdout.expect("stdout").send(piece).await.expect("it reads");
                streams.stderr.expect("stderr").send(Bytes::from_static(b"oops")).await.expect("it reads");
                Outcome::Success
            }
            .boxed()
        });
        let protocol = Protocol::of(Some("v4.channel.k8s.io"));
        let server = tokio::spawn(serve_command(theirs, protocol, wanted, run));
        let mut client = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        client.send(protocol.message(STDIN, b"hi")).await.expect("it reads");
        let mut seen = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            if !message.is_close() {
                seen.push(String::from_utf8_lossy(&message.into_data()).into_owned());
            }
        }
        assert_eq!(seen, ["\u{1}", "\u{1}hi", "\u{2}oops", "\u{3}{\"metadata\":{},\"status\":\"Success\"}"]);
        server.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pings_and_does_not_read_fills_no_memory() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let mut client = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        let (mut server, _permit) = socket(theirs).await;
        tokio::spawn(async move { while let Some(Ok(_)) = server.next().await {} });
        let ping = Bytes::from_static(&[b'x'; 100]);
        let pings = 4 * WAITING_BYTES / ping.len();
        for _ in 0..pings {
            client.send(Message::Ping(ping.clone())).await.expect("it reads");
        }
        let mut pongs = 0;
        while let Ok(Some(Ok(_))) = tokio::time::timeout(CLOSE, client.next()).await {
            pongs += 1;
        }
        assert!((1..=2 * WAITING_BYTES / ping.len()).contains(&pongs), "{pongs} pongs to {pings} pings");
    }

    #[tokio::test(start_paused = true)]
    async fn output_of_any_length_is_sent() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let wanted = Wanted { stdin: false, stdout: true, stderr: false, tty: false };
        let length = 4 * WAITING_BYTES;
        let run: Run = Box::new(move |streams: ClientStreams| {
            async move {
                let piece = Bytes::from(vec![b'x'; length]);
                streams.stdout.expect("stdout").send(piece).await.expect("it reads");
                Outcome::Success
            }
            .boxed()
        });
        let protocol = Protocol::of(Some("v4.base64.channel.k8s.io"));
        tokio::spawn(serve_command(theirs, protocol, wanted, run));
        let mut client = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        let mut received = 0;
        while let Some(Ok(message)) = client.next().await {
            if let Some((STDOUT, content)) = protocol.decode(&message.into_data()) {
                received += content.len();
            }
        }
        assert_eq!(received, length);
    }
}
