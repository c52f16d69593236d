//! Exec and attach over WebSockets with version 5 of the protocol. The WebSocket is terminated here: its channels map
//! to the streams of a SPDY connection to the kubelet.
//!
//! As in v1.34, the handshake is answered before the kubelet is dialed. Later failures are sent as a `Status` on the
//! error channel. A message starts with its channel number; 255 followed by a number closes that channel.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::Response;
use setpoint_webhook::Dialed;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, mpsc};
use tokio_tungstenite::tungstenite::Bytes;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};

use super::command::{Command, Outcome};
use super::streams::{Channels, Request};
use super::{IDLE, Kubelets};
use crate::body::Body;
use crate::metrics::StreamMetrics;
use crate::proxy::Location;
use crate::tunnel::{Idle, Tunnel};
use crate::websocket::{self, Socket};

pub(super) const PROTOCOL: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSED: u8 = 255;

/// Maximum size of a message from the client, as in v1.34.
const MESSAGE_BYTES: usize = 32 << 20;
/// Maximum size of a message while too many others are large. Most clients send stdin in pieces of some 32 KiB.
const SMALL_MESSAGE_BYTES: usize = 1 << 20;
/// How many connections may send large messages at the same time. One message is received while another waits to be
/// read: 8 · 2 · 32 MiB = 512 MiB.
static LARGE: Semaphore = Semaphore::const_new(8);
/// The maximum size of unsent data. Messages are at most 32 KiB and sent one at a time, so the rest is pongs: a client
/// that pings without reading only gets a pong for its last ping.
const WAITING_BYTES: usize = 256 << 10;
/// How often a client is pinged while its input is not read. The second ping detects a disconnected one.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// How long the last message may take, as in v1.34.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of a connection, and its permit for large messages, which must live as long.
pub(super) fn limits() -> (WebSocketConfig, Option<SemaphorePermit<'static>>) {
    let permit = LARGE.try_acquire().ok();
    let bytes = if permit.is_some() { MESSAGE_BYTES } else { SMALL_MESSAGE_BYTES };
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes))
        .max_frame_size(Some(bytes))
        .max_write_buffer_size(WAITING_BYTES);
    (config, permit)
}

/// Answers the handshake. The session follows.
pub(super) fn answer(request: Request<'_>, channels: Channels) -> Response<Body> {
    let Request { original, location, kubelets, metrics, clock, .. } = request;
    let mut switched = match websocket::accepted(original.method, original.headers, &[PROTOCOL]) {
        Ok((switched, _)) => switched,
        Err(refusal) => {
            metrics.translated(400);
            return *refusal;
        }
    };
    let session = Session {
        kubelets: kubelets.clone(),
        metrics: metrics.clone(),
        location,
        channels,
        idle: Idle::new(clock.clone(), IDLE),
    };
    switched.extensions_mut().insert(Tunnel::running(move |client| session.run(client)));
    switched
}

struct Session {
    kubelets: Arc<Kubelets>,
    metrics: Arc<StreamMetrics>,
    location: Location,
    channels: Channels,
    idle: Idle,
}

/// The channels that the client writes to. A channel holds one message that is not yet read.
struct Inputs {
    stdin: Option<mpsc::Sender<Bytes>>,
    resize: Option<mpsc::Sender<Bytes>>,
}

/// The client's side of a session, for senders.
pub(super) struct Output<'a> {
    sink: Mutex<SplitSink<Socket<Dialed>, Message>>,
    idle: &'a Idle,
}

impl Session {
    async fn run(self, client: Dialed) {
        let Self { kubelets, metrics, location, channels, idle } = &self;
        let (limits, _permit) = limits();
        let socket = websocket::after_handshake(client, limits).await;
        let (sink, source) = socket.split();
        let output = Output { sink: Mutex::new(sink), idle };
        let (stdin, from_stdin) = mpsc::channel(1);
        let (resize, from_resize) = mpsc::channel(1);
        let inputs =
            Inputs { stdin: channels.stdin.then_some(stdin), resize: channels.tty.then_some(resize) };
        let command = Command { kubelets, location, channels: *channels };
        let commanding = async {
            // Signals the client that the connection is established.
            if output.send(channels.first(), &[]).await.is_err() {
                return None;
            }
            Some(command.run(from_stdin, from_resize, &output).await)
        };
        let outcome = tokio::select! {
            outcome = commanding => outcome,
            () = inputs.receive(source, &output) => None,
            // As in v1.34, nothing more can be sent.
            () = idle.expired() => return,
        };
        match outcome {
            Some(outcome) => {
                metrics.translated(outcome.code());
                output.finish(outcome).await;
            }
            None => output.close().await,
        }
    }
}

impl Channels {
    /// The first channel that the client reads.
    fn first(self) -> u8 {
        match self {
            Self { stdout: true, .. } => STDOUT,
            Self { stderr: true, .. } => STDERR,
            _ => ERROR,
        }
    }
}

impl Inputs {
    /// Dispatches the client's messages until it ends the connection.
    async fn receive(mut self, mut source: SplitStream<Socket<Dialed>>, output: &Output<'_>) {
        while let Some(Ok(message)) = source.next().await {
            let mut data: Bytes = match message {
                Message::Binary(data) => data,
                Message::Text(text) => text.into(),
                Message::Close(_) => return,
                // Pings do not count as activity.
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            output.idle.touch();
            match *data {
                [] => {}
                [CLOSED, STDIN] => self.stdin = None,
                [CLOSED, RESIZE] => self.resize = None,
                [CLOSED, STDOUT | STDERR | ERROR] => {}
                // Not a channel: the client does not speak this protocol.
                [CLOSED, ..] => return,
                [channel, ..] => {
                    let data = data.split_off(1);
                    tokio::select! {
                        () = self.hand_out(channel, data) => {}
                        () = output.ping() => return,
                    }
                }
            }
        }
    }

    async fn hand_out(&mut self, channel: u8, data: Bytes) {
        let place = match channel {
            STDIN => &mut self.stdin,
            RESIZE => &mut self.resize,
            _ => return,
        };
        // Input that is no longer read is dropped.
        if let Some(reader) = place
            && reader.send(data).await.is_err()
        {
            *place = None;
        }
    }
}

impl Output<'_> {
    /// Sends a message on a channel.
    pub(super) async fn send(&self, channel: u8, data: &[u8]) -> Result<(), ()> {
        let mut message = Vec::with_capacity(data.len() + 1);
        message.push(channel);
        message.extend_from_slice(data);
        let sent = self.sink.lock().await.send(Message::binary(message)).await;
        self.idle.touch();
        sent.map_err(|error| tracing::debug!(%error, "a WebSocket ended early"))
    }

    /// Pings the client until it disconnects.
    async fn ping(&self) {
        loop {
            tokio::time::sleep(PING_PERIOD).await;
            if self.sink.lock().await.send(Message::Ping(Bytes::new())).await.is_err() {
                return;
            }
        }
    }

    /// Sends the outcome and closes the connection.
    async fn finish(self, outcome: Outcome) {
        let status = outcome.status();
        let sending = self.send(ERROR, status.as_bytes());
        let _ = tokio::time::timeout(STATUS_TIMEOUT, sending).await;
        self.close().await;
    }

    async fn close(self) {
        websocket::close(&mut self.sink.into_inner()).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pings_and_does_not_read_fills_no_memory() {
        let (near, far) = tokio::io::duplex(1024);
        let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        let (limits, _permit) = limits();
        let mut server = websocket::after_handshake(far, limits).await;
        tokio::spawn(async move { while let Some(Ok(_)) = server.next().await {} });
        let ping = Bytes::from_static(&[b'x'; 100]);
        let pings = 4 * WAITING_BYTES / ping.len();
        for _ in 0..pings {
            client.send(Message::Ping(ping.clone())).await.unwrap();
        }
        let mut pongs = 0;
        while let Ok(Some(Ok(_))) = tokio::time::timeout(Duration::from_secs(60), client.next()).await {
            pongs += 1;
        }
        assert!((1..=2 * WAITING_BYTES / ping.len()).contains(&pongs), "{pongs} pongs to {pings} pings");
    }
}
