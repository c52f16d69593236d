//! The way in over the network: HTTP/1.1 and HTTP/2 over TLS.
//!
//! Shutting down: accepting stops, open watches end, requests under way are answered; connections that
//! are still busy after [`DRAIN`] are dropped.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::chain::{self, Caller, Payload};
use crate::server::ApiServer;
use crate::tls::{Peer, ServerTls};
use crate::websocket::{self, Messages};

/// As many connections as are served at once; more wait to be accepted. Twice the 5,000 watchers of a large
/// cluster, each on a connection of its own; at some 60 KB of buffers each that is 600 MB in the worst case.
const CONNECTIONS: usize = 10_000;
/// What is encrypted for a client that does not read: two records. A watcher that lags has all of it.
const TLS_BUFFER: usize = 32 * 1024;
/// HTTP/2 requests under way on one connection, as in v1.34.
const STREAMS: u32 = 250;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long requests under way may take once the server is stopping.
const DRAIN: Duration = Duration::from_secs(10);
/// How long accepting pauses when the system is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections share.
struct Shared {
    server: ApiServer,
    tls: ServerTls,
    acceptor: TlsAcceptor,
    builder: auto::Builder<TokioExecutor>,
}

impl ApiServer {
    /// Serves until `stop`, then drains.
    pub async fn serve(self, listener: TcpListener, tls: ServerTls, stop: CancellationToken) {
        let acceptor = TlsAcceptor::from(tls.config.clone());
        let shared = Arc::new(Shared { server: self.clone(), tls, acceptor, builder: builder() });
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        while let Some((stream, permit)) = accept(&listener, &room, &stop).await {
            let connection = serve_connection(shared.clone(), stream, permit, graceful.watcher());
            tokio::spawn(connection);
        }
        drop(listener);
        self.close_watches();
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            tracing::warn!("some connections were still busy when the server stopped");
        }
        self.finish_writes().await;
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    builder
}

/// The next connection; `None` when it is time to stop.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    loop {
        let next = async {
            let permit = room.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = next => accepted,
        };
        match accepted {
            (Ok((stream, _)), Ok(permit)) => return Some((stream, permit)),
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (_, Err(_)) => return None,
        }
    }
}

async fn serve_connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(HANDSHAKE, shared.acceptor.accept(stream)).await;
    let Ok(Ok(mut stream)) = handshake else {
        tracing::debug!("a TLS handshake failed");
        return;
    };
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    let certificates = stream.get_ref().1.peer_certificates();
    let peer = Arc::new(shared.tls.peer(certificates.unwrap_or_default(), shared.server.0.now()));
    let answering = shared.clone();
    let permit = Arc::new(permit);
    let service = service_fn(move |request| {
        let (shared, peer, permit) = (answering.clone(), peer.clone(), permit.clone());
        async move { Ok::<_, Infallible>(answer(&shared, peer, request, &permit).await) }
    });
    let connection = shared.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(error, "a connection ended early");
    }
}

async fn answer(
    shared: &Shared,
    peer: Arc<Peer>,
    mut request: Request<Incoming>,
    permit: &Arc<OwnedSemaphorePermit>,
) -> Response<Body> {
    let upgrade = websocket::is_request(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let caller = Caller::Connection { peer };
    let mut response = chain::handle(&shared.server.0, caller, request.map(Payload::Unread)).await;
    if let (Some(upgrade), Some(messages)) = (upgrade, response.extensions_mut().remove::<Messages>()) {
        let pieces = std::mem::replace(response.body_mut(), Body::empty()).into_stream();
        let permit = permit.clone();
        tokio::spawn(async move {
            // The connection still counts as one.
            let _permit = permit;
            if let Ok(connection) = upgrade.await {
                websocket::send(TokioIo::new(connection), messages, pieces).await;
            }
        });
    }
    response
}
