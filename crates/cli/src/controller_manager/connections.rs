//! TLS connections to the secure port: their number, their timeouts, and how they end.
//!
//! - A new connection is never kept waiting. At the limit, an idle connection of the peer with the most connections is
//!   closed. If none is idle, the new one is closed.
//! - A connection without a request is closed after a timeout, whatever it is waiting for: a handshake, the rest of a
//!   header, or a client that does not read.
//! - A shutdown closes idle connections immediately, and waits for requests in flight only up to the limit.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The HTTP settings of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) http2: bool,
    /// The maximum number of concurrent requests per connection, if limited.
    pub(crate) most_streams: Option<u32>,
}

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of connections: scrapers and probes are few. At some 60 KB of buffers each, that is 6 MB.
    pub(crate) connections: usize,
    /// From the connection to the first complete header, including the handshake, as in kube-controller-manager.
    pub(crate) first_request: Duration,
    /// Between two requests, as in kube-controller-manager.
    pub(crate) idle: Duration,
    /// For requests in flight when the port closes.
    pub(crate) drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 100,
            first_request: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            drain: Duration::from_secs(2),
        }
    }
}

/// How long accepting pauses when the system is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) type Certificates = Arc<[CertificateDer<'static>]>;
pub(crate) type Answer = Response<Full<Bytes>>;

/// Serves until `stop` is cancelled.
pub(crate) async fn serve<A, F>(listener: TcpListener, port: Port<A>, stop: CancellationToken)
where
    A: Fn(Request<Incoming>, Certificates) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let (port, places) = (Arc::new(port), Arc::new(ConnectionTable::default()));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
            }
        };
        if let Some(place) = ConnectionTable::take(&places, peer.ip(), port.limits.connections) {
            tasks.spawn(connection(stream, place, port.clone(), stop.clone()));
        }
    }
    drop(listener);
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(port.limits.drain, drained).await.is_err() {
        tasks.shutdown().await;
    }
}

/// The request handler and the settings of the port.
pub(crate) struct Port<A> {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) protocol: Protocol,
    pub(crate) limits: Limits,
    pub(crate) answer: A,
}

async fn connection<A, F>(
    stream: TcpStream,
    place: ConnectionSlot,
    port: Arc<Port<A>>,
    stop: CancellationToken,
) where
    A: Fn(Request<Incoming>, Certificates) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let handshake = tokio::time::timeout(port.limits.first_request, port.acceptor.accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = place.evicted.cancelled() => return,
        () = stop.cancelled() => return,
    };
    let Ok(Ok(stream)) = shaken else { return };
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates: Certificates = shown.iter().map(|one| one.clone().into_owned()).collect();
    let (requests, limits, builder) = (place.requests.clone(), port.limits, builder(port.protocol));
    let service = service_fn(move |request: Request<Incoming>| {
        let (port, certificates, under_way) =
            (port.clone(), certificates.clone(), InFlightRequest::begin(&requests));
        async move {
            let _under_way = under_way;
            Ok::<_, Infallible>((port.answer)(request, certificates).await)
        }
    });
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut requests = place.requests.subscribe();
    let (mut is_stopping, mut limit) = (false, limits.first_request);
    loop {
        let is_idle = *requests.borrow_and_update() == 0;
        tokio::select! {
            biased;
            ended = &mut served => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection to the secure port ended");
                }
                return;
            }
            () = stop.cancelled(), if !is_stopping => {
                if is_idle {
                    return;
                }
                is_stopping = true;
                served.as_mut().graceful_shutdown();
            }
            () = place.evicted.cancelled() => return,
            _ = requests.changed() => limit = limits.idle,
            () = tokio::time::sleep(limit), if is_idle => return,
        }
    }
}

fn builder(protocol: Protocol) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    if let Some(most) = protocol.most_streams {
        builder.http2().max_concurrent_streams(most);
    }
    if protocol.http2 { builder } else { builder.http1_only() }
}

/// A request in flight. Counted until it is dropped.
struct InFlightRequest(watch::Sender<usize>);

impl InFlightRequest {
    fn begin(requests: &watch::Sender<usize>) -> Self {
        requests.send_modify(|requests| *requests += 1);
        Self(requests.clone())
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.send_modify(|requests| *requests = requests.saturating_sub(1));
    }
}

/// The open connections, in the order they were accepted.
#[derive(Default)]
struct ConnectionTable(Mutex<ConnectionEntry>);

#[derive(Default)]
struct ConnectionEntry {
    next: u64,
    places: BTreeMap<u64, ConnectionState>,
}

/// The shared state of a connection.
struct ConnectionState {
    peer: IpAddr,
    requests: watch::Sender<usize>,
    evicted: CancellationToken,
}

/// A connection's slot, freed on drop.
struct ConnectionSlot {
    all: Arc<ConnectionTable>,
    number: u64,
    requests: watch::Sender<usize>,
    evicted: CancellationToken,
}

impl ConnectionTable {
    /// Takes a slot for a new connection. Returns `None` if all connections are busy.
    fn take(all: &Arc<Self>, peer: IpAddr, most: usize) -> Option<ConnectionSlot> {
        let mut taken = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.places.len() >= most {
            let number = taken.eviction_candidate()?;
            taken.places.remove(&number)?.evicted.cancel();
        }
        let (requests, evicted) = (watch::Sender::new(0), CancellationToken::new());
        let number = taken.next;
        taken.next += 1;
        taken
            .places
            .insert(number, ConnectionState { peer, requests: requests.clone(), evicted: evicted.clone() });
        Some(ConnectionSlot { all: all.clone(), number, requests, evicted })
    }
}

impl ConnectionEntry {
    /// Returns the oldest idle connection of the peer with the most connections.
    fn eviction_candidate(&self) -> Option<u64> {
        let of = |peer: IpAddr| self.places.values().filter(|seen| seen.peer == peer).count();
        let idle = self.places.iter().filter(|(_, seen)| *seen.requests.borrow() == 0);
        // For equal keys, `max_by_key` returns the last one, which is the oldest here.
        idle.rev().max_by_key(|(_, seen)| of(seen.peer)).map(|(number, _)| *number)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use setpoint_apiserver::tls::Authority;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    use super::*;

    struct Running {
        address: std::net::SocketAddr,
        connector: TlsConnector,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
        /// A request to `/wait` is in flight.
        waiting: CancellationToken,
        /// Requests to `/wait` are answered when this is cancelled.
        go_on: CancellationToken,
    }

    fn der(pem: &str) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
    }

    /// Starts a port that answers `ok`.
    async fn run(limits: Limits) -> Running {
        let now = setpoint::Clock::system().now();
        let authority = Authority::generate(now).unwrap();
        let own = authority.server_certificate(&[], now).unwrap();
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider.clone());
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(der(&own.certificate), key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(der(&authority.identity().certificate).remove(0)).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider);
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let [stop, waiting, go_on] = std::array::from_fn(|_| CancellationToken::new());
        let wait = (waiting.clone(), go_on.clone());
        let answer = move |request: Request<Incoming>, _: Certificates| {
            let wait = wait.clone();
            async move {
                if request.uri().path() == "/wait" {
                    wait.0.cancel();
                    wait.1.cancelled().await;
                }
                Response::new(Full::new("ok".into()))
            }
        };
        let protocol = Protocol { http2: true, most_streams: None };
        let port = Port { acceptor: TlsAcceptor::from(Arc::new(server)), protocol, limits, answer };
        let task = tokio::spawn(serve(listener, port, stop.clone()));
        Running { address, connector: TlsConnector::from(Arc::new(client)), stop, task, waiting, go_on }
    }

    impl Running {
        async fn connect(&self) -> TlsStream<TcpStream> {
            let stream = TcpStream::connect(self.address).await.unwrap();
            self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
        }

        async fn get(&self, path: &str) -> TlsStream<TcpStream> {
            let mut stream = self.connect().await;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        }
    }

    async fn is_answered(stream: &mut TlsStream<TcpStream>) -> bool {
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.is_ok() && &begin == b"HTTP/1.1 200"
    }

    #[tokio::test]
    async fn idle_connections_give_way_to_new_ones() {
        let port = run(Limits { connections: 3, ..Limits::default() }).await;
        let mut idle = Vec::new();
        for _ in 0..10 {
            idle.push(port.connect().await);
        }
        // Some clients never start a handshake.
        let _silent = futures::future::join_all((0..10).map(|_| TcpStream::connect(port.address))).await;
        assert!(is_answered(&mut port.get("/").await).await);
    }

    #[tokio::test]
    async fn a_busy_connection_keeps_its_place() {
        let port = run(Limits { connections: 2, ..Limits::default() }).await;
        let mut busy = port.get("/wait").await;
        port.waiting.cancelled().await;
        for _ in 0..5 {
            assert!(is_answered(&mut port.get("/").await).await);
        }
        port.go_on.cancel();
        assert!(is_answered(&mut busy).await);
    }

    #[tokio::test]
    async fn a_connection_without_a_request_is_closed() {
        let short = Duration::from_millis(20);
        let port = run(Limits { first_request: short * 10, idle: short, ..Limits::default() }).await;
        let mut dribbling = port.connect().await;
        dribbling.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        let mut used = port.get("/").await;
        assert!(is_answered(&mut used).await);
        for stream in [&mut dribbling, &mut used] {
            let mut rest = Vec::new();
            // How it ends does not matter, only that it does.
            let _ = stream.read_to_end(&mut rest).await;
        }
    }

    #[tokio::test]
    async fn the_port_closes_with_connections_open() {
        let port = run(Limits { drain: Duration::from_millis(50), ..Limits::default() }).await;
        let _idle = port.connect().await;
        let _silent = TcpStream::connect(port.address).await.unwrap();
        let _busy = port.get("/wait").await;
        port.waiting.cancelled().await;
        port.stop.cancel();
        port.task.await.unwrap();
    }

    #[test]
    fn the_peer_with_the_most_connections_gives_way() {
        let places = Arc::new(ConnectionTable::default());
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        let one = ConnectionTable::take(&places, peer(1), 3).unwrap();
        let two: Vec<_> = (0..2).map(|_| ConnectionTable::take(&places, peer(2), 3).unwrap()).collect();
        let _new = ConnectionTable::take(&places, peer(3), 3).unwrap();
        assert!(
            !one.evicted.is_cancelled() && two[0].evicted.is_cancelled() && !two[1].evicted.is_cancelled()
        );
        let _all_busy: Vec<_> = places
            .0
            .lock()
            .unwrap()
            .places
            .values()
            .map(|seen| InFlightRequest::begin(&seen.requests))
            .collect();
        assert!(ConnectionTable::take(&places, peer(4), 3).is_none());
    }
}
