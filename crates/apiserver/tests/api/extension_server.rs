//! Extension API servers: over TLS and in the paused time of a test.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use setpoint_apiserver::aggregation::{AggregationConfig, ProxyIdentity};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::tls::{Authority, ServerTls};
use setpoint_apiserver::{Authenticator, Body, Config};
use setpoint_clock::Clock;
use setpoint_webhook::{Dial, Dialed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

use crate::client::Api;

pub(crate) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub(crate) const GIZMOS: &str = "/apis/ext.example.com/v1/namespaces/x/gizmos";
pub(crate) const NAME: &str = "v1.ext.example.com";

pub(crate) type Sent = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Answered = Result<Response<Sent>, io::Error>;
type Handler = Arc<dyn Fn(Parts, Bytes) -> BoxFuture<'static, Answered> + Send + Sync>;
/// Answers a request whose body has not been read.
type RawHandler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answered> + Send + Sync>;

/// A request that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
    /// The common name of the client's certificate.
    pub(crate) client: Option<String>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        self.head.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// A server that every connection leads to.
#[derive(Clone)]
pub(crate) struct ExtensionServer {
    handler: Handler,
    /// For paths that end with `/raw`.
    pub(crate) raw: Arc<Mutex<Option<RawHandler>>>,
    tls: TlsAcceptor,
    pub(crate) ca: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    pub(crate) dialed: Arc<Mutex<Vec<String>>>,
    /// Open connections.
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) refuses: Arc<AtomicBool>,
    /// Connections are accepted, and then nothing happens.
    pub(crate) is_silent: Arc<AtomicBool>,
}

/// Counts an open connection.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ExtensionServer {
    /// A server with a certificate for its Service, which asks for one of the client's that `clients` has signed.
    pub(crate) fn new(
        clients: &Authority,
        handler: impl Fn(Parts, Bytes) -> BoxFuture<'static, Answered> + Send + Sync + 'static,
    ) -> Self {
        let own = rcgen::generate_simple_self_signed(["ext.default.svc".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(clients.identity().certificate.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let verifier = verifier.allow_unauthenticated().build().unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            handler: Arc::new(handler),
            raw: Arc::default(),
            tls: TlsAcceptor::from(Arc::new(config)),
            ca: own.cert.pem(),
            arrived: Arc::default(),
            dialed: Arc::default(),
            open: Arc::default(),
            refuses: Arc::default(),
            is_silent: Arc::default(),
        }
    }

    /// Takes the requests that have arrived, except for those for documents.
    pub(crate) fn take(&self) -> Vec<Arrived> {
        let all = std::mem::take(&mut *self.arrived.lock());
        let is_document = |path: &str| path.matches('/').count() <= 3 || path.starts_with("/openapi");
        all.into_iter().filter(|one| !is_document(one.head.uri.path())).collect()
    }

    /// Takes all requests that have arrived.
    pub(crate) fn take_all(&self) -> Vec<Arrived> {
        std::mem::take(&mut *self.arrived.lock())
    }

    pub(crate) fn set(flag: &AtomicBool, on: bool) {
        flag.store(on, Ordering::SeqCst);
    }

    pub(crate) fn connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    async fn answer(self, client: Option<String>, request: Request<Incoming>) -> Answered {
        let raw = self.raw.lock().clone();
        if let Some(raw) = raw.filter(|_| request.uri().path().ends_with("/raw")) {
            return raw(request).await;
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        self.arrived.lock().push(Arrived { head: head.clone(), body: body.clone(), client });
        (self.handler)(head, body).await
    }

    async fn serve(self, stream: tokio::io::DuplexStream) {
        self.open.fetch_add(1, Ordering::SeqCst);
        let _open = Open(self.open.clone());
        if self.is_silent.load(Ordering::SeqCst) {
            let mut stream = stream;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            return;
        }
        let Ok(stream) = self.tls.clone().accept(stream).await else { return };
        let client = stream.get_ref().1.peer_certificates().and_then(|chain| common_name(&chain[0]));
        let service = service_fn(move |request| self.clone().answer(client.clone(), request));
        let builder = auto::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}

impl Dial for ExtensionServer {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        self.dialed.lock().push(format!("{host}:{port}"));
        if self.refuses.load(Ordering::SeqCst) {
            let why = format!("dial tcp {host}:{port}: connect: connection refused");
            return std::future::ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))).boxed();
        }
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(self.clone().serve(theirs));
        std::future::ready(Ok(Box::new(ours) as Dialed)).boxed()
    }
}

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Sent {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn pieces(pieces: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static) -> Sent {
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

pub(crate) fn reply(code: u16, body: &Value) -> Response<Sent> {
    let mut response = Response::new(whole(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

pub(crate) fn ok(body: &Value) -> BoxFuture<'static, Answered> {
    std::future::ready(Ok(reply(200, body))).boxed()
}

/// The list of a group version's resources.
pub(crate) fn resources() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ext.example.com/v1", "resources": [
        {"name": "gizmos", "singularName": "gizmo", "namespaced": true, "kind": "Gizmo", "verbs": ["get", "list"]}]})
}

/// A server with an APIService of another one.
pub(crate) struct Aggregated {
    pub(crate) api: Api,
    pub(crate) extension: ExtensionServer,
    pub(crate) identity: ProxyIdentity,
    /// Signs the certificates that the extension server accepts.
    pub(crate) clients: Authority,
    stop: CancellationToken,
}

impl Drop for Aggregated {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Aggregated {
    /// Starts with an extension server that has gizmos, and answers other paths by `handler`.
    pub(crate) async fn start(
        handler: impl Fn(Parts, Bytes) -> BoxFuture<'static, Answered> + Send + Sync + 'static,
    ) -> Self {
        let aggregated = Self::start_changed(
            move |head, body| match head.uri.path() {
                "/apis/ext.example.com/v1" => ok(&resources()),
                "/apis" | "/openapi/v2" | "/openapi/v3" => {
                    std::future::ready(Ok(reply(404, &json!({})))).boxed()
                }
                _ => handler(head, body),
            },
            |config| config,
        )
        .await;
        aggregated.register().await;
        aggregated
    }

    /// Starts with an extension server that answers everything itself, and with changes to the configuration. Nothing is
    /// registered.
    pub(crate) async fn start_changed(
        handler: impl Fn(Parts, Bytes) -> BoxFuture<'static, Answered> + Send + Sync + 'static,
        change: impl FnOnce(Config) -> Config,
    ) -> Self {
        let clock = Clock::system();
        let clients = Authority::generate(clock.now()).unwrap();
        let certificate = clients.client_certificate("front-proxy-client", &[], clock.now()).unwrap();
        let identity = ProxyIdentity::new(certificate.certificate, certificate.key);
        let extension = ExtensionServer::new(&clients, handler);
        let egress = EgressConfig { dial: Arc::new(extension.clone()), ..EgressConfig::default() };
        let aggregation = AggregationConfig { identity: identity.clone(), ..AggregationConfig::default() };
        let api = Api::start_changed(|config| change(Config { egress, aggregation, ..config })).await;
        let stop = CancellationToken::new();
        let (server, ending) = (api.server.clone(), stop.clone());
        tokio::spawn(async move { server.aggregate(ending).await });
        Self { api, extension, identity, clients, stop }
    }

    pub(crate) fn service(&self) -> Value {
        json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 8443}]}})
    }

    pub(crate) fn slice(&self) -> Value {
        json!({"metadata": {"name": "ext", "labels": {"kubernetes.io/service-name": "ext"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.7"], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}]})
    }

    /// An APIService for a group version.
    pub(crate) fn api_service(&self, group: &str, version: &str) -> Value {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.extension.ca);
        json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
            "caBundle": ca, "service": {"namespace": "default", "name": "ext"}}})
    }

    /// Creates the Service and its endpoints.
    pub(crate) async fn expose(&self) {
        self.api.post(SERVICES, self.service()).await.created();
        self.api.post(SLICES, self.slice()).await.created();
    }

    /// Registers the server for its group version, and waits until it is available.
    pub(crate) async fn register(&self) {
        self.expose().await;
        self.api.post(API_SERVICES, self.api_service("ext.example.com", "v1")).await.created();
        self.until(NAME, "True").await;
    }

    /// Waits until the condition of an APIService has a status, and returns it.
    pub(crate) async fn until(&self, name: &str, status: &str) -> Value {
        self.until_that(name, |condition| condition["status"] == status).await
    }

    pub(crate) async fn until_that(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..1200 {
            let service = self.api.get(&format!("{API_SERVICES}/{name}")).await.ok();
            let condition = service["status"]["conditions"][0].clone();
            if holds(&condition) {
                return condition;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let service = self.api.get(&format!("{API_SERVICES}/{name}")).await.ok();
        panic!("timed out waiting for the condition of {name}: {service}")
    }

    /// Waits until a path of this server answers as it should.
    pub(crate) async fn until_answered(
        &self,
        accept: &str,
        path: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        for _ in 0..1200 {
            last = self.api.get_as(accept, path).await.body;
            if holds(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("timed out waiting for the expected response of {path}: {last}")
    }

    /// Waits until no connection is open.
    pub(crate) async fn until_idle(&self) {
        self.until_open(0).await;
    }

    /// Waits until this many connections are open at most. Background reads keep one.
    pub(crate) async fn until_open(&self, most: usize) {
        for _ in 0..1200 {
            if self.extension.connections() <= most {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{} connections stay open", self.extension.connections())
    }
}

/// The server on a socket.
pub(crate) struct Front {
    address: SocketAddr,
    authority: Authority,
}

impl Aggregated {
    /// Serves on a socket, to clients with the token `secret`.
    pub(crate) async fn serve(&self) -> Front {
        let now = Clock::system().now();
        let authority = Authority::generate(now).unwrap();
        let tls = ServerTls::new(&authority.server_certificate(&[], now).unwrap(), &authority).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(self.api.server.clone().serve(listener, tls, self.stop.clone()));
        Front { address, authority }
    }

    pub(crate) fn with_token(config: Config) -> Config {
        let authenticator =
            Authenticator::new().with_token_file("secret,bob,2,\"system:masters\"\n").unwrap();
        Config { authenticator, ..config }
    }
}

impl Front {
    /// Opens a connection and sends the head of a request.
    pub(crate) async fn send(&self, first: &str, headers: &str) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.authority.identity().certificate.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("kubernetes.default.svc").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let head = format!("{first} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }
}

/// Reads the head of a response.
pub(crate) async fn head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Reads a body to its end, and whether it was complete.
pub(crate) async fn read(body: Body) -> (Bytes, bool) {
    let mut body = body;
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => whole.extend(frame.into_data().unwrap_or_default()),
            Err(_) => return (whole.into(), false),
        }
    }
    (whole.into(), true)
}
