//! Requests and responses whose bodies are streamed, for proxying.
//!
//! Invariants:
//! - a body is never held as a whole: each side is read only as fast as the other one takes it;
//! - a request ends when its future or the body of its response is dropped;
//! - a connection is established within [`DIAL`](crate::dial) or not at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::dial::{Connector, Dial, MAX_HEADERS};
use crate::go_text::{go_client_text, go_text};
use crate::tls::{TlsError, TlsSettings};

/// Idle connections kept per host and for how long, as in v1.34's clients.
const IDLE_CONNECTIONS: usize = 25;
const IDLE: Duration = Duration::from_secs(90);
/// Pings on an HTTP/2 connection with open streams, as in v1.34's clients, to detect dead peers.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Unread bytes of a response per HTTP/1.1 connection, and per HTTP/2 stream. A proxied request so holds at most twice
/// this, once in each direction.
const BUFFER: usize = 64 << 10;
/// Unread bytes per HTTP/2 connection: those of 1,024 streams. Servers allow 100 to 250 at a time, so clients that do
/// not read their responses never hold up the others.
const CONNECTION_WINDOW: u32 = 1024 * BUFFER as u32;

/// The body of a proxied request.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Sends requests to the hosts in their URLs. Dropping it closes idle connections; requests in progress go on.
pub struct Transport {
    http: legacy::Client<Connector, RequestBody>,
    /// For responses that last: with HTTP/2 they would share one connection per host, and occupy its streams.
    lasting: legacy::Client<Connector, RequestBody>,
    /// Upgraded connections are never shared, and HTTP/2 has no upgrades.
    upgrades: Connector,
}

/// Why a request got no response, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub String);

/// An empty body.
pub fn no_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

impl Transport {
    pub fn new(tls: &TlsSettings, dial: Arc<dyn Dial>) -> Result<Self, TlsError> {
        let connector = |tls: &TlsSettings| Connector::new(tls, dial.clone());
        let mut client = legacy::Client::builder(TokioExecutor::new());
        client
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(BUFFER)
            .http1_max_headers(MAX_HEADERS)
            .http2_initial_stream_window_size(BUFFER as u32)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_send_buf_size(BUFFER)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        let upgrades = connector(&TlsSettings { http1_only: true, ..tls.clone() })?;
        Ok(Self { http: client.build(connector(tls)?), lasting: client.build(upgrades.clone()), upgrades })
    }

    /// Sends a request and returns the head of the response. A read that finds its connection closed by an idle server
    /// is sent once more, on another connection.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, SendError> {
        send_by(&self.http, request).await.map_err(|error| failed(&error))
    }

    /// Like [`send`](Self::send), but describes failures as Go's `http.Client` does.
    pub async fn send_as_client(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        send_by(&self.http, request).await.map_err(|error| SendError(go_client_text(&error)))
    }

    /// Like [`send`](Self::send), for a long-running request: it gets its own connection, so any number of them
    /// cannot delay others.
    pub async fn send_long_running(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        send_by(&self.lasting, request).await.map_err(|error| failed(&error))
    }

    /// Sends an upgrade request on its own connection. If the response switches protocols,
    /// `hyper::upgrade::on` has the connection.
    pub async fn upgrade(&self, mut request: Request<RequestBody>) -> Result<Response<Incoming>, SendError> {
        let failed = |why: &dyn std::fmt::Display| SendError(why.to_string());
        let connection = self.upgrades.clone().connect(request.uri().clone()).await;
        let connection =
            connection.map_err(|why| SendError(format!("error dialing backend: {}", go_text(&why))))?;
        let (mut sender, driver) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .max_headers(MAX_HEADERS)
            .handshake(connection)
            .await
            .map_err(|why| failed(&why))?;
        // Ends with the response, or with the protocol that follows it.
        tokio::spawn(async move {
            let _ = driver.with_upgrades().await;
        });
        to_origin_form(&mut request).map_err(|why| failed(&why))?;
        sender.send_request(request).await.map_err(|why| SendError(go_text(&why)))
    }
}

async fn send_by(
    client: &legacy::Client<Connector, RequestBody>,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, legacy::Error> {
    let again = is_repeatable(&request).then(|| copy(&request));
    match (client.request(request).await, again) {
        (Err(error), Some(again)) if was_closed(&error) => client.request(again).await,
        (response, _) => response,
    }
}

/// Moves the host of the URL to the header, as HTTP/1.1 requires, unless the request has another one there.
fn to_origin_form(request: &mut Request<RequestBody>) -> Result<(), http::Error> {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().entry(header::HOST).or_insert(host);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    Ok(())
}

fn is_repeatable(request: &Request<RequestBody>) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    is_read && request.body().is_end_stream()
}

fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(no_body());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Whether the server closed the connection before it answered anything.
fn was_closed(error: &legacy::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<hyper::Error>());
    !error.is_connect() && source.is_some_and(|source| source.is_incomplete_message() || source.is_canceled())
}

fn failed(error: &legacy::Error) -> SendError {
    SendError(go_text(error))
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::mpsc;

    use super::*;
    use crate::dial::Dialed;

    /// Hands out the other ends of its connections.
    struct Piped(mpsc::Sender<DuplexStream>);

    impl Dial for Piped {
        fn dial(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Dialed>> {
            let (near, far) = tokio::io::duplex(1024);
            self.0.try_send(far).unwrap();
            std::future::ready(Ok(Box::new(near) as Dialed)).boxed()
        }
    }

    /// Accepts TLS with any protocol, and tells which one was chosen. Never answers.
    struct Silent(Arc<rustls::ServerConfig>, mpsc::Sender<Vec<u8>>);

    impl Silent {
        fn new(chosen: mpsc::Sender<Vec<u8>>) -> Self {
            let key = rcgen::generate_simple_self_signed(["n".to_owned()]).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let private =
                rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
            let mut config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![key.cert.der().clone()], private)
                .unwrap();
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Self(Arc::new(config), chosen)
        }
    }

    impl Dial for Silent {
        fn dial(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Dialed>> {
            let (near, far) = tokio::io::duplex(64 << 10);
            let (acceptor, chosen) = (tokio_rustls::TlsAcceptor::from(self.0.clone()), self.1.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(far).await.unwrap();
                chosen.try_send(stream.get_ref().1.alpn_protocol().unwrap().to_vec()).unwrap();
                std::future::pending::<()>().await;
            });
            std::future::ready(Ok(Box::new(near) as Dialed)).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_last_have_a_connection_each_and_others_share_one() {
        let (chosen, mut protocols) = mpsc::channel(8);
        let tls = TlsSettings { is_insecure: true, ..TlsSettings::default() };
        let transport = Transport::new(&tls, Arc::new(Silent::new(chosen))).unwrap();
        let request = || {
            let mut request = Request::new(no_body());
            *request.uri_mut() = "https://n/x".parse().unwrap();
            request
        };
        let lasting = futures::future::join_all((0..3).map(|_| transport.send_long_running(request())));
        assert!(tokio::time::timeout(Duration::from_secs(1), lasting).await.is_err(), "no one answers");
        for _ in 0..3 {
            assert_eq!(protocols.try_recv().unwrap(), b"http/1.1");
        }
        let others = futures::future::join_all((0..3).map(|_| transport.send(request())));
        assert!(tokio::time::timeout(Duration::from_secs(1), others).await.is_err(), "no one answers");
        assert_eq!(protocols.try_recv().unwrap(), b"h2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_upgrade_was_refused_is_closed() {
        let (dialed, mut connections) = mpsc::channel(1);
        let tls = TlsSettings { is_insecure: true, ..TlsSettings::default() };
        let transport = Transport::new(&tls, Arc::new(Piped(dialed))).unwrap();
        let mut request = Request::new(no_body());
        *request.uri_mut() = "http://n/x".parse().unwrap();
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        let answering = async {
            let mut far = connections.recv().await.unwrap();
            let mut head = [0; 1024];
            let count = far.read(&mut head).await.unwrap();
            assert!(head[..count].starts_with(b"GET /x HTTP/1.1\r\n"));
            far.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            far
        };
        let (response, mut far) = tokio::join!(transport.upgrade(request), answering);
        let response = response.unwrap();
        assert_eq!(response.status(), 404);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
        let ended = tokio::time::timeout(Duration::from_secs(60), far.read(&mut [0; 8])).await;
        assert_eq!(ended.expect("it is closed").unwrap(), 0);
    }
}
