//! Port forwarding to the local process that stands in for a pod.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, SinkExt, StreamExt};
use http::Request;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use setpoint::Cached;
use setpoint_spdy::{Headers, ResetStatus, Role, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backend::ByteStream;
use super::remote::{accept_spdy, after};
use super::request::{is_websocket, values};
use super::route::{Answered, Refusal};
use super::spdy::{CLOSE, IDLE, PIECES, settings};
use super::websocket::{self, Protocol};
use super::{Node, Upgrade};
use crate::log::LOOK_EVERY;
use crate::view::PodView;

const PROTOCOLS: [&str; 1] = ["portforward.k8s.io"];
const WEBSOCKET_PROTOCOLS: [&str; 2] = ["v4.channel.k8s.io", "v4.base64.channel.k8s.io"];

/// How long the second stream of a pair may take, as with a kubelet.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of ports of a WebSocket: each has two channels, whose numbers are bytes.
const PORTS: usize = 64;

/// How much is read from a local process at once.
const PIECE_BYTES: usize = 16 << 10;

/// The maximum length of a request ID. Clients use numbers.
const ID_BYTES: usize = 256;

/// A pod whose ports are forwarded.
#[derive(Clone)]
struct Forwarded {
    node: Node,
    pod: Cached<PodView>,
}

impl Forwarded {
    /// Returns the pod as it is now, unless it has ended.
    fn current(&self) -> Option<Cached<PodView>> {
        let key = self.pod.key();
        let found = self.node.pod(key.namespace().unwrap_or_default(), key.name())?;
        let is_same = found.meta().uid == self.pod.meta().uid;
        (is_same && found.status.phase == "Running").then_some(found)
    }

    /// Waits for the end of the pod.
    async fn ended(&self) {
        while self.current().is_some() {
            self.node.server.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Connects to the process that stands in for the pod as it is now.
    async fn connect(&self, port: u16) -> Result<Box<dyn ByteStream>, String> {
        let uid = &self.pod.meta().uid;
        let pod = self.current().ok_or("the pod is not running")?;
        self.node.server.backends.connect(&pod, uid, port).await
    }
}

impl Node {
    pub(super) async fn forward_request(
        &self,
        request: &mut Request<Incoming>,
        (namespace, pod, uid): (&str, &str, Option<&str>),
        query: &str,
        upgrades: &mpsc::Sender<Upgrade>,
    ) -> Answered {
        let is_websocket = is_websocket(request.headers());
        let ports = if is_websocket { ports(query).map_err(Refusal::bad_request)? } else { Vec::new() };
        let found = self.pod(namespace, pod).ok_or_else(|| Refusal::not_found("pod does not exist"))?;
        if uid.is_some_and(|uid| *uid != *found.meta().uid) {
            return Err(Refusal::not_found("pod not found"));
        }
        if found.status.phase != "Running" {
            return Err(Refusal::internal(format!("pod not found (\"{pod}_{namespace}\")")));
        }
        let forwarded = Forwarded { node: self.clone(), pod: found };
        if is_websocket {
            let (response, protocol) = websocket::accept(request.headers(), &WEBSOCKET_PROTOCOLS)?;
            let upgrading = hyper::upgrade::on(request);
            return after(upgrading, response, upgrades, move |connection| {
                let serving = forwarded.clone().over_websocket(connection, protocol, ports);
                async move { until(forwarded.ended(), serving).await }.boxed()
            });
        }
        let response = match accept_spdy(request, &PROTOCOLS)? {
            Ok((response, _)) => response,
            Err(refused) => return Ok(refused),
        };
        let upgrading = hyper::upgrade::on(request);
        after(upgrading, response, upgrades, move |connection| {
            let serving = forwarded.clone().over_spdy(connection);
            async move { until(forwarded.ended(), serving).await }.boxed()
        })
    }
}

/// Serves until the pod has ended.
async fn until(ended: impl Future<Output = ()>, serving: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = serving => {}
        () = ended => {}
    }
}

/// Reads the ports that a query lists.
fn ports(query: &str) -> Result<Vec<u16>, String> {
    let listed = values(query, "port");
    if listed.is_empty() {
        return Err("query parameter \"port\" is required".into());
    }
    let mut ports = Vec::new();
    for text in listed.iter().flat_map(|list| list.split(',')) {
        match text.parse::<u16>() {
            _ if text.is_empty() => return Err("query parameter \"port\" cannot be empty".into()),
            Ok(0) => return Err(format!("port {text:?} must be > 0")),
            Ok(port) => ports.push(port),
            Err(_) => return Err(format!("unable to parse {text:?} as a port")),
        }
    }
    if ports.len() > PORTS {
        return Err(format!("at most {PORTS} ports can be forwarded"));
    }
    Ok(ports)
}

/// The streams of one forwarded connection: one for data and one for errors.
#[derive(Default)]
struct Pair {
    data: Option<Stream>,
    error: Option<Stream>,
    port: u16,
    /// The deadline for completing it.
    deadline: Option<Instant>,
}

/// The purpose of a client's stream.
struct Purpose {
    port: u16,
    is_error: bool,
    request: Option<String>,
}

impl Purpose {
    fn of(headers: &Headers) -> Option<Self> {
        let port = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
        let is_error = match headers.get("streamType")? {
            "error" => true,
            "data" => false,
            _ => return None,
        };
        let request = headers.get("requestID").filter(|id| !id.is_empty()).map(str::to_owned);
        if request.as_ref().is_some_and(|id| id.len() > ID_BYTES) {
            return None;
        }
        Some(Self { port, is_error, request })
    }

    /// Returns the request that a stream belongs to. Old clients have no IDs, and open their streams in pairs.
    fn request(&self, stream: u32) -> String {
        let pair = if self.is_error { stream } else { stream.saturating_sub(2) };
        self.request.clone().unwrap_or_else(|| pair.to_string())
    }
}

impl Forwarded {
    async fn over_spdy(self, connection: Upgraded) {
        let (connection, driver) = setpoint_spdy::connect(TokioIo::new(connection), Role::Server, settings());
        let mut driver = std::pin::pin!(driver);
        let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
        let mut forwarding = FuturesUnordered::new();
        loop {
            let oldest = pairs.values().filter_map(|pair| pair.deadline).min();
            let incoming = tokio::select! {
                biased;
                _ = &mut driver => return,
                Some(()) = forwarding.next() => continue,
                // A pair that is not complete by now never will be. Its stream is reset when it is dropped.
                () = reached(oldest) => {
                    pairs.retain(|_, pair| pair.deadline > oldest);
                    continue;
                }
                incoming = connection.accept() => incoming,
            };
            let Some(incoming) = incoming else { break };
            let Some(purpose) = Purpose::of(&incoming.headers()) else {
                incoming.refuse();
                continue;
            };
            let stream = incoming.accept();
            let request = purpose.request(stream.id());
            let pair = pairs.entry(request.clone()).or_default();
            let place = if purpose.is_error { &mut pair.error } else { &mut pair.data };
            if place.is_some() {
                stream.reset(ResetStatus::REFUSED_STREAM);
                continue;
            }
            *place = Some(stream);
            pair.port = purpose.port;
            if pair.data.is_some() && pair.error.is_some() {
                let pair = pairs.remove(&request).unwrap_or_default();
                forwarding.push(self.clone().forward(pair));
            } else {
                pair.deadline = Some(self.node.server.clock.instant() + CREATION_TIMEOUT);
            }
        }
        // The client opens no more streams; existing ones continue.
        while let Some(()) = tokio::select! {
            biased;
            _ = &mut driver => None,
            done = forwarding.next() => done,
        } {}
        _ = tokio::time::timeout(CLOSE, driver).await;
    }

    /// Copies between a pair of streams and a local process.
    async fn forward(self, pair: Pair) {
        let (Some(mut data), Some(mut error)) = (pair.data, pair.error) else { return };
        let uid = &self.pod.meta().uid;
        let copied = match self.connect(pair.port).await {
            Ok(backend) => exchange(&mut data, backend).await.map_err(|why| why.to_string()),
            Err(why) => Err(why),
        };
        if let Err(why) = copied {
            let text = format!("error forwarding port {} to pod {uid}, uid : {why}", pair.port);
            // A disconnected client needs no error.
            _ = error.write_all(text.as_bytes()).await;
            _ = error.shutdown().await;
            data.reset(ResetStatus::CANCEL);
            return;
        }
        _ = data.shutdown().await;
        _ = error.shutdown().await;
    }

    /// Forwards ports over channels: two for each port, which begin with the port's number.
    async fn over_websocket(self, connection: Upgraded, protocol: Protocol, ports: Vec<u16>) {
        let (mut socket, _permit) = websocket::socket(TokioIo::new(connection)).await;
        let (output, mut outgoing) = mpsc::channel(PIECES);
        let (mut inputs, mut forwarding) = (Vec::new(), FuturesUnordered::new());
        for (at, port) in ports.into_iter().enumerate() {
            // At most 64 ports, so the numbers of their channels are bytes.
            let channel = (2 * at) as u8;
            for channel in [channel, channel + 1] {
                if socket.send(protocol.message(channel, &port.to_le_bytes())).await.is_err() {
                    return;
                }
            }
            let (input, read) = mpsc::channel(PIECES);
            inputs.push(input);
            forwarding.push(self.clone().forward_channel(port, channel, read, output.clone()));
        }
        drop(output);
        let (mut sender, mut receiver) = socket.split();
        let forwarding = async {
            while forwarding.next().await.is_some() {}
            std::future::pending::<()>().await;
        };
        // Ends with the last port.
        let sending = async {
            while let Some((channel, content)) = outgoing.recv().await {
                let content: Vec<u8> = content;
                if sender.send(protocol.message(channel, &content)).await.is_err() {
                    return;
                }
            }
            _ = tokio::time::timeout(CLOSE, sender.close()).await;
        };
        let receiving = async {
            while let Ok(Some(Ok(message))) = tokio::time::timeout(IDLE, receiver.next()).await {
                if message.is_close() {
                    return;
                }
                pass(&message.into_data(), protocol, &inputs).await;
            }
        };
        tokio::select! {
            biased;
            () = forwarding => {}
            () = sending => {}
            () = receiving => {}
        }
    }

    async fn forward_channel(
        self,
        port: u16,
        channel: u8,
        mut input: mpsc::Receiver<bytes::Bytes>,
        output: mpsc::Sender<(u8, Vec<u8>)>,
    ) {
        let uid = &self.pod.meta().uid;
        let backend = match self.connect(port).await {
            Ok(backend) => backend,
            Err(why) => {
                let text = format!("error forwarding port {port} to pod {uid}, uid : {why}");
                _ = output.send((channel + 1, text.into_bytes())).await;
                return;
            }
        };
        let (mut reader, mut writer) = tokio::io::split(backend);
        let sending = async {
            let mut piece = vec![0; PIECE_BYTES];
            while let Ok(length @ 1..) = reader.read(&mut piece).await {
                if output.send((channel, piece[..length].to_vec())).await.is_err() {
                    break;
                }
            }
        };
        let receiving = async {
            while let Some(piece) = input.recv().await {
                if writer.write_all(&piece).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = sending => {}
            () = receiving => {}
        }
    }
}

/// Waits for a time, if there is one.
async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Copies between a client and a local process, until both have ended. An error is the process's: kubectl resets its
/// stream as soon as the process has ended.
async fn exchange(client: &mut Stream, backend: impl AsyncRead + AsyncWrite) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_backend, to_backend) = tokio::io::split(backend);
    let sending = async {
        copy(from_client, to_backend).await.map_err(|broken| match broken {
            Broken::Reader(_) => None,
            Broken::Writer(error) => Some(error),
        })
    };
    let receiving = async {
        copy(from_backend, to_client).await.map_err(|broken| match broken {
            Broken::Reader(error) => Some(error),
            Broken::Writer(_) => None,
        })
    };
    let ended = tokio::try_join!(sending, receiving);
    ended.map(drop).or_else(|error| error.map_or(Ok(()), Err))
}

/// The side of a copy that failed.
enum Broken {
    Reader(io::Error),
    Writer(io::Error),
}

/// Copies to the end, and ends the writer.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Result<(), Broken> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece).await.map_err(Broken::Reader)? {
            0 => return to.shutdown().await.map_err(Broken::Writer),
            length => to.write_all(&piece[..length]).await.map_err(Broken::Writer)?,
        }
    }
}

/// Passes a message to the port of its channel. Messages on channels for errors are ignored.
async fn pass(message: &[u8], protocol: Protocol, inputs: &[mpsc::Sender<bytes::Bytes>]) {
    let Some((channel, content)) = protocol.decode(message) else { return };
    if let Some(input) = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0) {
        // A process that has ended reads nothing.
        _ = input.send(content).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_with_a_long_request_id_has_no_purpose() {
        let headers = |id: usize| {
            let headers = Headers::new().with("port", "80").with("streamType", "data");
            headers.with("requestID", "1".repeat(id))
        };
        assert!(Purpose::of(&headers(ID_BYTES)).is_some());
        assert!(Purpose::of(&headers(ID_BYTES + 1)).is_none());
    }

    #[test]
    fn ports_are_listed_in_the_query() {
        let check = |query: &str, expected: Result<&[u16], &str>| {
            let found = ports(query);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{query}");
        };
        check("port=80&port=81,82", Ok(&[80, 81, 82]));
        check("", Err("query parameter \"port\" is required"));
        check("port=", Err("query parameter \"port\" cannot be empty"));
        check("port=0", Err("port \"0\" must be > 0"));
        check("port=x", Err("unable to parse \"x\" as a port"));
    }
}
