//! The network server: HTTP/1.1 and HTTP/2 over TLS.
//!
//! Invariants:
//! - the accept loop waits only for new connections: handshakes and requests run in the connection's task;
//! - what a client can make the server hold is bounded: connections ([`connections`]), streams, headers, unread bytes
//!   ([`stall`], [`bodies`], [`monitored`]);
//! - shutdown takes a bounded time ([`drain`]).

mod bodies;
mod connections;
mod drain;
mod monitored;
mod settings;
mod stall;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::connections::Connections;
pub(crate) use self::connections::Slot;
use self::drain::Draining;
pub use self::settings::ServeSettings;
use self::stall::Stall;
use crate::body::Body;
use crate::chain::{self, Caller, Deadline, Payload};
use crate::proxy::headers::is_upgrade;
use crate::server::ApiServer;
use crate::tls::{ClientCertificate, ServerTls};
use crate::tunnel::Tunnel;
use crate::websocket::{self, Messages};

/// TLS buffer for a client that does not read: one record. A lagging watcher uses all of it.
const TLS_BUFFER: usize = 16 * 1024;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Timeout for reading request headers, as in v1.34.
const HEADERS: Duration = Duration::from_secs(32);
/// HTTP/1.1 buffer size per connection, in each direction: limits headers and unread response data. Go accepts headers
/// of 1 MiB; here a client that does not read could then hold as much. Responses are held back earlier ([`bodies`]).
const BUFFER: usize = 32 * 1024;
/// Maximum number of HTTP/1.1 headers of a request. A front proxy sends one for each group of a user, and Go has no such
/// limit. Takes 64 bytes each while a request is parsed.
const MAX_HEADERS: usize = 1_000;
/// Maximum size of HTTP/2 request headers after decompression: Go's default of 1 MiB.
const HEADER_BYTES: u32 = 1 << 20;
/// Interval and timeout of pings to a silent HTTP/2 client.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// TCP keep-alive interval, as in v1.34.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
/// HTTP/2 send buffer per stream: two chunks of a watch.
const SEND_BUFFER: usize = 32 * 1024;
/// How much a client may send before it is read: a body waits for authorization. With 10,000 connections that is 2.5
/// GB in the worst case.
const RECEIVE_WINDOW: u32 = 256 * 1024;
/// Maximum streams that a client may open and reset before they are handled; more close the connection. Twice the
/// limit of open streams.
const PENDING_RESETS: usize = 200;
/// Maximum stream errors of a client before its connection is closed.
const ERROR_RESETS: usize = 200;
/// Pause of the accept loop if the system is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval of connection sweeps.
const SWEEP: Duration = Duration::from_secs(10);
/// How long connections may take to close once nothing is in progress on them.
const CLOSE: Duration = Duration::from_secs(10);

/// State shared by connections.
struct ServerState {
    server: ApiServer,
    tls: ServerTls,
    builder: auto::Builder<TokioExecutor>,
    connections: Arc<Connections>,
    draining: Arc<Draining>,
    goaway_chance: f64,
}

impl ApiServer {
    /// Serves until `stop`, then drains.
    pub async fn serve(self, listener: TcpListener, tls: ServerTls, stop: CancellationToken) {
        let settings = self.0.serving.clone();
        let shared = Arc::new(ServerState {
            tls,
            builder: builder(&settings),
            connections: Connections::new(self.0.clock.clone(), &settings),
            draining: Arc::default(),
            goaway_chance: settings.goaway_chance,
            server: self.clone(),
        });
        accept_until(&shared, &listener, &stop).await;
        self.begin_shutdown();
        let drained = drain(&shared, &settings);
        match settings.send_retry_after {
            true => {
                shared.draining.refusing.cancel();
                let over = CancellationToken::new();
                let draining = async {
                    drained.await;
                    over.cancel();
                };
                tokio::join!(draining, accept_until(&shared, &listener, &over));
                drop(listener);
            }
            false => {
                drop(listener);
                drained.await;
            }
        }
        close(&shared).await;
        let writes = tokio::time::timeout(self.0.request_timeout, self.finish_writes());
        if writes.await.is_err() {
            tracing::warn!("some writes were still in flight when the server stopped");
        }
    }

    /// Makes `/readyz` fail from now on, so that load balancers choose another server. Requests are still served.
    pub fn begin_shutdown(&self) {
        self.0.stopping.cancel();
    }
}

/// Waits for requests and watches in progress to finish.
async fn drain(shared: &ServerState, settings: &ServeSettings) {
    let draining = &shared.draining;
    let spread = draining.end_watches(shared.connections.count(), settings.watch_grace);
    let requests = tokio::time::timeout(shared.server.0.request_timeout, draining.requests_done());
    let (requests, ()) = tokio::join!(requests, tokio::time::sleep(spread));
    if requests.is_err() {
        tracing::warn!("some requests were still in flight when the server stopped");
    }
    shared.server.close_watches();
}

/// Closes connections as they become idle and, after a while, the rest.
async fn close(shared: &ServerState) {
    shared.connections.finishing.cancel();
    let closed = async {
        while shared.connections.count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(CLOSE, closed).await.is_err() {
        tracing::warn!("some connections were still busy when the server stopped");
    }
    shared.connections.closing.cancel();
}

fn builder(settings: &ServeSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(BUFFER)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.http2_streams)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_header_list_size(HEADER_BYTES)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS);
    builder
}

/// Accepts connections until shutdown, and sweeps open ones.
async fn accept_until(shared: &Arc<ServerState>, listener: &TcpListener, stop: &CancellationToken) {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = sweep.tick() => {
                shared.connections.sweep();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => accept(shared, stream, client),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection in its own task, if there is room for it.
fn accept(shared: &Arc<ServerState>, stream: TcpStream, client: SocketAddr) {
    match shared.connections.open(client.ip().to_canonical()) {
        Some(slot) => _ = tokio::spawn(serve_connection(shared.clone(), stream, client.ip(), slot)),
        None => tracing::warn!(%client, "rejected a connection: too many are open"),
    }
}

async fn serve_connection(shared: Arc<ServerState>, stream: TcpStream, peer: IpAddr, slot: Arc<Slot>) {
    let _ = stream.set_nodelay(true);
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
    let to = stream.local_addr().ok().map(|address| address.ip());
    let acceptor = TlsAcceptor::from(shared.tls.config(to));
    let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(Stall::new(stream, slot.bodies.clone())));
    let handshake = tokio::select! {
        biased;
        () = slot.close.cancelled() => return,
        () = slot.finish.cancelled() => return,
        handshake = handshake => handshake,
    };
    let Ok(Ok(mut stream)) = handshake else {
        tracing::debug!("a TLS handshake failed");
        return;
    };
    slot.established();
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    let certificate = Arc::new(ClientCertificate::new(stream.get_ref().1.peer_certificates()));
    let (answering, answering_slot) = (shared.clone(), slot.clone());
    let service = service_fn(move |request| {
        let (shared, certificate, slot) = (answering.clone(), certificate.clone(), answering_slot.clone());
        // Boxed, so that it is freed with the response: otherwise a connection keeps the memory of its last request's
        // future, and a watch is one request for hours.
        Box::pin(
            async move { Ok::<_, Infallible>(handle(&shared, &certificate, peer, request, &slot).await) },
        )
    });
    let mut connection = pin!(shared.builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let mut is_finishing = false;
    loop {
        tokio::select! {
            biased;
            () = slot.close.cancelled() => return,
            () = slot.finish.cancelled(), if !is_finishing => {
                is_finishing = true;
                // Finishes requests in progress and accepts no new ones.
                connection.as_mut().graceful_shutdown();
            }
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended early");
                }
                return;
            }
        }
    }
}

async fn handle(
    shared: &ServerState,
    certificate: &ClientCertificate,
    peer: IpAddr,
    mut request: Request<Incoming>,
    slot: &Arc<Slot>,
) -> Response<Body> {
    let busy = slot.begin();
    let is_http2 = request.version() == Version::HTTP_2;
    if let Some(refusal) = shared.draining.refusal(request.uri().path(), request.headers()) {
        if is_http2 {
            slot.finish.cancel();
        }
        return refusal;
    }
    if is_http2 && shared.goaway_chance > 0.0 && shared.server.0.rng.fraction() < shared.goaway_chance {
        slot.finish.cancel();
    }
    let under_way = shared.draining.begin();
    let upgrade = is_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let certificate = certificate.peer(&shared.tls, shared.server.0.now());
    let caller = Caller::Connection { certificate, peer, slot: Some(slot.clone()) };
    let response = chain::handle(&shared.server.0, caller, request.map(Payload::Unread)).await;
    drop(under_way);
    let (draining, rng) = (&shared.draining, &shared.server.0.rng);
    let mut response = response.map(|body| monitored::monitored(body, slot, draining, rng, busy));
    if let Some(Deadline(deadline)) = response.extensions_mut().remove() {
        response.body_mut().cut_off_at(deadline);
    }
    if let Some(upgrade) = upgrade {
        follow_upgrade(shared, slot, upgrade, &mut response);
    }
    response
}

/// Continues in the protocol that a response switches to. The connection still counts, and closes with the others.
fn follow_upgrade(shared: &ServerState, slot: &Arc<Slot>, upgrade: OnUpgrade, response: &mut Response<Body>) {
    let messages = response.extensions_mut().remove::<Messages>();
    let tunnel = response.extensions_mut().remove::<Tunnel>();
    let following = match (messages, tunnel) {
        (Some(messages), _) => {
            let pieces = std::mem::replace(response.body_mut(), Body::empty()).into_stream();
            async move {
                if let Ok(connection) = upgrade.await {
                    websocket::send(TokioIo::new(connection), messages, pieces).await;
                }
            }
            .boxed()
        }
        (None, Some(tunnel)) => {
            let (busy, ending) = (slot.begin(), shared.server.0.closing.clone());
            async move {
                let _busy = busy;
                if let Ok(connection) = upgrade.await {
                    ending.run_until_cancelled(tunnel.run(TokioIo::new(connection))).await;
                }
            }
            .boxed()
        }
        (None, None) => return,
    };
    let slot = slot.clone();
    tokio::spawn(async move { slot.close.run_until_cancelled(following).await });
}
