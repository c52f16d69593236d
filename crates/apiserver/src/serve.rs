//! The way in over the network: HTTP/1.1 and HTTP/2 over TLS.
//!
//! Shutting down: accepting stops, open watches end, requests under way are answered; connections that
//! are still busy after [`DRAIN`] are dropped.

use std::convert::Infallible;
use std::net::IpAddr;
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
use crate::chain::{self, Caller, Certificate, Payload};
use crate::server::ApiServer;
use crate::tls::{ClientCertificate, ServerTls, Verdict};
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
    builder: auto::Builder<TokioExecutor>,
}

impl ApiServer {
    /// Serves until `stop`, then drains.
    pub async fn serve(self, listener: TcpListener, tls: ServerTls, stop: CancellationToken) {
        let shared = Arc::new(Shared { server: self.clone(), tls, builder: builder() });
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        while let Some((stream, peer, permit)) = accept(&listener, &room, &stop).await {
            let connection = serve_connection(shared.clone(), stream, peer, permit, graceful.watcher());
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
) -> Option<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
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
            (Ok((stream, peer)), Ok(permit)) => return Some((stream, peer.ip(), permit)),
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
    peer: IpAddr,
    permit: OwnedSemaphorePermit,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let _ = stream.set_nodelay(true);
    let to = stream.local_addr().ok().map(|address| address.ip());
    let acceptor = TlsAcceptor::from(shared.tls.config(to));
    let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
    let Ok(Ok(mut stream)) = handshake else {
        tracing::debug!("a TLS handshake failed");
        return;
    };
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    let certificate = Arc::new(ClientCertificate::new(stream.get_ref().1.peer_certificates()));
    let answering = shared.clone();
    let permit = Arc::new(permit);
    let service = service_fn(move |request| {
        let (shared, certificate, permit) = (answering.clone(), certificate.clone(), permit.clone());
        async move { Ok::<_, Infallible>(answer(&shared, &certificate, peer, request, &permit).await) }
    });
    let connection = shared.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(error, "a connection ended early");
    }
}

async fn answer(
    shared: &Shared,
    certificate: &ClientCertificate,
    peer: IpAddr,
    mut request: Request<Incoming>,
    permit: &Arc<OwnedSemaphorePermit>,
) -> Response<Body> {
    let certificate = match certificate.verdict(&shared.tls, shared.server.0.now()) {
        Verdict::User(user) => Certificate::Verified(user),
        Verdict::Nobody => Certificate::Absent,
        Verdict::Refused => Certificate::Rejected,
    };
    let caller = Caller::Connection { certificate, peer };
    let upgrade = websocket::is_request(request.headers()).then(|| hyper::upgrade::on(&mut request));
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
