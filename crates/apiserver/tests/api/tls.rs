//! Connections over the network, at the byte level.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use setpoint_apiserver::audit::{AuditConfig, BackendConfig, Entry, Format, Mode, Policy, SendError, Sink};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::tls::{
    Authority, ClientTrust, Identity, NamedCertificate, ServerIdentity, ServerTls, certified,
};
use setpoint_apiserver::{ApiServer, Authenticator, Config, ServeSettings};
use setpoint_clock::{Clock, Rng};
use setpoint_store::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

use crate::fake_kubelet::{FakeKubelet, process};

struct Serving {
    address: SocketAddr,
    authority: Authority,
    admin: Identity,
    tls: ServerTls,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn serve() -> Serving {
    serve_with(|config| config).await
}

async fn serve_with(change: impl FnOnce(Config) -> Config) -> Serving {
    let clock = Clock::system();
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let authority = Authority::generate(clock.now()).unwrap();
    let certificate = authority.server_certificate(&[], clock.now()).unwrap();
    let admin = authority.admin_certificate(clock.now()).unwrap();
    let tls = ServerTls::new(&certificate, &authority).unwrap();
    let authenticator = Authenticator::new().with_token_file("secret,bob,2,\"system:masters\"\n").unwrap();
    let config = change(Config { authenticator, ..Config::new(store, clock, Rng::seeded(1)) });
    let server = ApiServer::start(config).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(server.serve(listener, tls.clone(), stop.clone()));
    Serving { address, authority, admin, tls, stop, task }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

fn key(pem: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()
}

impl Serving {
    async fn connect(&self, identity: Option<&Identity>) -> TlsStream<TcpStream> {
        self.connect_trusting(&self.authority, "kubernetes.default.svc", identity).await
    }

    /// Connects as a client that trusts this CA and requests this server name.
    async fn connect_trusting(
        &self,
        authority: &Authority,
        name: &'static str,
        identity: Option<&Identity>,
    ) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(certificates(&authority.identity().certificate).remove(0)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match identity {
            Some(identity) => builder
                .with_client_auth_cert(certificates(&identity.certificate), key(&identity.key))
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// Sends a request and returns everything until the server closes the connection.
    async fn ask(&self, identity: Option<&Identity>, head: &str, body: &[u8]) -> String {
        let mut stream = self.connect(identity).await;
        let head =
            format!("{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server may respond and close the connection before it has read everything.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[tokio::test]
async fn certificates_and_tokens_identify_the_user() {
    let serving = serve().await;
    let list = "GET /api/v1/namespaces HTTP/1.1";
    let admin = serving.ask(Some(&serving.admin), list, b"").await;
    assert!(admin.starts_with("HTTP/1.1 200") && admin.contains("kube-system"), "{admin}");
    let bob = serving.ask(None, &format!("{list}\r\nauthorization: Bearer secret"), b"").await;
    assert!(bob.starts_with("HTTP/1.1 200"), "{bob}");
    let wrong = serving.ask(None, &format!("{list}\r\nauthorization: Bearer wrong"), b"").await;
    assert!(wrong.starts_with("HTTP/1.1 401") && wrong.contains("Unauthorized"), "{wrong}");
    let stranger = serving.ask(None, list, b"").await;
    assert!(stranger.starts_with("HTTP/1.1 403") && stranger.contains("system:anonymous"), "{stranger}");
}

#[tokio::test]
async fn an_untrusted_certificate_requires_another_credential() {
    let serving = serve().await;
    let now = Clock::system().now();
    let list = "GET /api/v1/namespaces HTTP/1.1";
    let other = Authority::generate(now).unwrap().admin_certificate(now).unwrap();
    let long_ago = now - jiff::SignedDuration::from_hours(24 * 800);
    let expired = serving.authority.admin_certificate(long_ago).unwrap();
    let server = serving.authority.server_certificate(&[], now).unwrap();
    for (identity, why) in [(&other, "its authority"), (&expired, "its time"), (&server, "its purpose")] {
        let refused = serving.ask(Some(identity), list, b"").await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{why}: {refused}");
        let bob = serving.ask(Some(identity), &format!("{list}\r\nauthorization: Bearer secret"), b"").await;
        assert!(bob.starts_with("HTTP/1.1 200"), "{why}: {bob}");
    }
}

/// Sends a request on a connection that stays open, and returns the first line of the response.
async fn first_line(stream: &mut TlsStream<TcpStream>) -> String {
    stream.write_all(b"GET /api/v1/namespaces/default HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 1 << 16];
    let count = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..count]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn certificates_and_authorities_are_replaced_while_connections_are_open() {
    let serving = serve().await;
    let now = Clock::system().now();
    let mut open = serving.connect(Some(&serving.admin)).await;
    assert_eq!(first_line(&mut open).await, "HTTP/1.1 200 OK");
    let other = Authority::generate(now).unwrap();
    let of = |authority: &Authority| {
        let made = authority.server_certificate(&[], now).unwrap();
        Arc::new(certified(&made.certificate, &made.key).unwrap())
    };
    let named = NamedCertificate { certificate: of(&serving.authority), names: vec!["localhost".into()] };
    let clients = ClientTrust::new(&[&other.identity().certificate]).unwrap();
    serving.tls.replace(&ServerIdentity { certificate: of(&other), named: vec![named], clients }).unwrap();
    assert_eq!(first_line(&mut open).await, "HTTP/1.1 401 Unauthorized", "its CA is no longer trusted");
    let admin = other.admin_certificate(now).unwrap();
    let mut new = serving.connect_trusting(&other, "kubernetes.default.svc", Some(&admin)).await;
    assert_eq!(first_line(&mut new).await, "HTTP/1.1 200 OK");
    let mut by_name = serving.connect_trusting(&serving.authority, "localhost", Some(&admin)).await;
    assert_eq!(first_line(&mut by_name).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn clients_with_the_old_authority_trust_the_renewed_one() {
    let serving = serve().await;
    let now = Clock::system().now();
    let (new, cross_signed) = serving.authority.renewed(now).unwrap();
    let mut made = new.server_certificate(&[], now).unwrap();
    made.certificate += &cross_signed;
    let certificate = Arc::new(certified(&made.certificate, &made.key).unwrap());
    let both = [new.identity().certificate.as_str(), &serving.authority.identity().certificate];
    let clients = ClientTrust::new(&both).unwrap();
    serving.tls.replace(&ServerIdentity { certificate, named: Vec::new(), clients }).unwrap();
    let admin = new.admin_certificate(now).unwrap();
    for authority in [&serving.authority, &new] {
        for identity in [&serving.admin, &admin] {
            let mut stream =
                serving.connect_trusting(authority, "kubernetes.default.svc", Some(identity)).await;
            assert_eq!(first_line(&mut stream).await, "HTTP/1.1 200 OK");
        }
    }
}

#[tokio::test]
async fn a_request_may_have_hundreds_of_headers() {
    let serving = serve().await;
    let groups: String = (0..500).map(|number| format!("\r\nimpersonate-group: g{number}")).collect();
    let head = format!("GET /api/v1/namespaces HTTP/1.1\r\nimpersonate-user: a{groups}");
    let refused = serving.ask(Some(&serving.admin), &head, b"").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let head = format!("{head}\r\nimpersonate-group: system:masters");
    let listed = serving.ask(Some(&serving.admin), &head, b"").await;
    assert!(listed.starts_with("HTTP/1.1 200"), "the last group counts: {listed}");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let serving = serve().await;
    let body = vec![b' '; (3 << 20) + 1];
    for (method, name, media) in [
        ("POST", "", "application/json"),
        ("POST", "", "application/yaml"),
        ("PUT", "/a", "application/json"),
        ("PATCH", "/a", "application/json-patch+json"),
        ("PATCH", "/a", "application/merge-patch+json"),
        ("PATCH", "/a", "application/strategic-merge-patch+json"),
        ("PATCH", "/a", "application/apply-patch+yaml"),
        ("DELETE", "/a", "application/json"),
    ] {
        let path = format!("/api/v1/namespaces/default/configmaps{name}");
        let head = format!("{method} {path} HTTP/1.1\r\ncontent-type: {media}");
        let answer = serving.ask(Some(&serving.admin), &head, &body).await;
        let is_refused = answer.starts_with("HTTP/1.1 413") && answer.contains("RequestEntityTooLarge");
        assert!(is_refused, "{method} {media}: {answer}");
    }
}

type Socket = tokio_tungstenite::WebSocketStream<TlsStream<TcpStream>>;

/// Opens a WebSocket. Returns the status code if that fails.
async fn open(serving: &Serving, path: &str, headers: &[(&str, &str)]) -> Result<Socket, u16> {
    let mut request = format!("wss://kubernetes.default.svc{path}").into_client_request().unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    match tokio_tungstenite::client_async(request, serving.connect(None).await).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn event(socket: &mut Socket) -> serde_json::Value {
    let message = tokio::time::timeout(Duration::from_secs(5), socket.next()).await.unwrap();
    serde_json::from_str(message.unwrap().unwrap().to_text().unwrap()).unwrap()
}

const ORIGIN: (&str, &str) = ("origin", "http://localhost");
/// `secret`, in the form that browsers can send.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0";

#[tokio::test]
async fn a_browser_watches_through_a_websocket() {
    let serving = serve().await;
    let protocols = ("sec-websocket-protocol", &*format!("{TOKEN}, v1.watch"));
    let path = "/api/v1/namespaces?watch=1&timeoutSeconds=3600";
    let mut socket = open(&serving, path, &[ORIGIN, protocols]).await.unwrap();
    let first = event(&mut socket).await;
    assert_eq!((&first["type"], &first["object"]["kind"]), (&"ADDED".into(), &"Namespace".into()));
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    socket.send(Message::text("nobody listens")).await.unwrap();
    let created = serving
        .ask(Some(&serving.admin), "POST /api/v1/namespaces HTTP/1.1", br#"{"metadata":{"name":"new"}}"#)
        .await;
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let (mut is_new, mut has_pong) = (false, false);
    while !(is_new && has_pong) {
        let message = tokio::time::timeout(Duration::from_secs(5), socket.next()).await.unwrap();
        match message.unwrap().unwrap() {
            Message::Pong(echo) => has_pong = echo == "are you there".as_bytes(),
            message => is_new = is_new || message.to_text().unwrap().contains("\"name\":\"new\""),
        }
    }
    serving.stop.cancel();
    while let Some(Ok(message)) = socket.next().await {
        assert!(message.is_close(), "stopping ends WebSocket watches too: {message}");
    }
    tokio::time::timeout(Duration::from_secs(5), serving.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_websocket_watch_is_authorized() {
    let serving = serve().await;
    let path = "/api/v1/namespaces?watch=1";
    for (headers, code) in [
        (vec![ORIGIN], 403),
        (vec![ORIGIN, ("sec-websocket-protocol", TOKEN)], 401),
        (vec![ORIGIN, ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.d3Jvbmc, x")], 401),
        (vec![("authorization", "Bearer secret")], 403),
        (vec![ORIGIN, ("authorization", "Bearer secret"), ("sec-websocket-protocol", "a, b")], 400),
    ] {
        let Err(refused) = open(&serving, path, &headers).await else { panic!("{headers:?}") };
        assert_eq!(refused, code, "{headers:?}");
    }
    let mut late =
        open(&serving, &format!("{path}&resourceVersion=x"), &[ORIGIN, ("authorization", "Bearer secret")])
            .await;
    assert!(late.as_mut().is_err(), "options are validated first");
}

#[tokio::test]
async fn stopping_ends_watches_and_drains() {
    let serving = serve().await;
    let mut watch = serving.connect(Some(&serving.admin)).await;
    watch.write_all(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 64];
    let count = watch.read(&mut first).await.unwrap();
    assert!(first[..count].starts_with(b"HTTP/1.1 200"));
    serving.stop.cancel();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), watch.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the stream ends as it should: {}", String::from_utf8_lossy(&rest));
    tokio::time::timeout(Duration::from_secs(5), serving.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(serving.address).await.is_err());
}

/// Keeps the events.
#[derive(Clone, Default)]
struct Recorded(Arc<std::sync::Mutex<Vec<serde_json::Value>>>);

impl Sink for Recorded {
    fn name(&self) -> &'static str {
        "log"
    }

    fn send(&self, batch: Vec<Entry>) -> BoxFuture<'static, Result<(), SendError>> {
        let events = batch.iter().map(|entry| serde_json::from_slice(&entry.bytes).unwrap());
        self.0.lock().unwrap().extend(events);
        std::future::ready(Ok(())).boxed()
    }
}

#[tokio::test]
async fn every_response_names_its_request_and_a_bad_token_is_recorded() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [list]}]\n";
    let log = Recorded::default();
    let (sink, mode) = (Box::new(log.clone()), Mode::Blocking);
    let backend = BackendConfig { sink, mode, format: Format::Json, truncation: None };
    let audit = AuditConfig { policy: Policy::parse(text).unwrap(), backends: vec![backend] };
    let serving = serve_with(|config| Config { audit: Some(audit), ..config }).await;
    let list = "GET /api/v1/namespaces HTTP/1.1";
    let answer = serving.ask(Some(&serving.admin), "GET /livez HTTP/1.1", b"").await;
    assert!(answer.contains("\r\naudit-id: "), "{answer}");
    let head = format!("{list}\r\naudit-id: mine\r\nauthorization: Bearer wrong");
    let answer = serving.ask(None, &head, b"").await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("\r\naudit-id: mine\r\n"), "{answer}");
    let events = log.0.lock().unwrap().clone();
    assert_eq!(events.len(), 1, "{events:?}");
    let event = &events[0];
    assert_eq!((&event["stage"], &event["user"]), (&"ResponseStarted".into(), &serde_json::json!({})));
    assert_eq!(event["responseStatus"]["code"], 401);
    assert_eq!(event["sourceIPs"], serde_json::json!(["127.0.0.1"]));
}

/// A list that waits for three seconds for a version that is never reached.
const SLOW: &str = "GET /api/v1/namespaces?resourceVersion=999999&resourceVersionMatch=NotOlderThan HTTP/1.1";

/// Sends a request without waiting for the response.
async fn send(stream: &mut TlsStream<TcpStream>, head: &str) {
    let head = format!("{head}\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

/// Returns the next data. Empty if the server has closed the connection.
async fn receive(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = vec![0; 64 << 10];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned()
}

#[tokio::test]
async fn a_silent_connection_blocks_neither_others_nor_the_shutdown() {
    let serving = serve_with(|config| Config {
        serving: ServeSettings { connections: 3, connections_per_client: 3, ..ServeSettings::default() },
        ..config
    })
    .await;
    // More connections than allowed, all of them silent.
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect(serving.address).await.unwrap());
    }
    let answer = serving.ask(Some(&serving.admin), "GET /version HTTP/1.1", b"").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serving.stop.cancel();
    tokio::time::timeout(Duration::from_secs(15), serving.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_are_limited_per_user() {
    let serving = serve_with(|config| Config {
        serving: ServeSettings { connections_per_user: 2, ..ServeSettings::default() },
        ..config
    })
    .await;
    let mut watching = Vec::new();
    for _ in 0..2 {
        let mut one = serving.connect(None).await;
        send(&mut one, "GET /api/v1/namespaces?watch=1 HTTP/1.1").await;
        assert!(receive(&mut one).await.starts_with("HTTP/1.1 200"));
        watching.push(one);
    }
    let mut third = serving.connect(None).await;
    send(&mut third, "GET /version HTTP/1.1").await;
    let refused = receive(&mut third).await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1"), "{refused}");
    assert_eq!(receive(&mut third).await, "", "its connection is closed");
    let other = serving.ask(Some(&serving.admin), "GET /version HTTP/1.1", b"").await;
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    drop(watching.pop());
    let mut fourth = serving.connect(None).await;
    for _ in 0..100 {
        send(&mut fourth, "GET /version HTTP/1.1").await;
        if receive(&mut fourth).await.starts_with("HTTP/1.1 200") {
            return;
        }
        // The server has not noticed yet that the other one is gone.
        tokio::time::sleep(Duration::from_millis(50)).await;
        fourth = serving.connect(None).await;
    }
    panic!("there is no room for another one");
}

#[tokio::test]
async fn the_longest_idle_connection_is_closed_for_a_new_one() {
    let serving = serve_with(|config| Config {
        serving: ServeSettings { connections: 2, ..ServeSettings::default() },
        ..config
    })
    .await;
    let mut idle = serving.connect(None).await;
    send(&mut idle, "GET /version HTTP/1.1").await;
    assert!(receive(&mut idle).await.starts_with("HTTP/1.1 200"));
    let mut watching = serving.connect(None).await;
    send(&mut watching, "GET /api/v1/namespaces?watch=1 HTTP/1.1").await;
    assert!(receive(&mut watching).await.starts_with("HTTP/1.1 200"));
    let mut third = serving.connect(None).await;
    send(&mut third, "GET /version HTTP/1.1").await;
    assert!(receive(&mut third).await.starts_with("HTTP/1.1 200"));
    assert_eq!(receive(&mut idle).await, "", "the idle one is closed");
    let created = br#"{"metadata":{"name":"new"}}"#;
    drop(third);
    serving.ask(Some(&serving.admin), "POST /api/v1/namespaces HTTP/1.1", created).await;
    assert!(!receive(&mut watching).await.is_empty(), "the watch goes on");
}

#[tokio::test]
async fn a_stopping_server_finishes_running_requests_and_rejects_new_ones() {
    let serving = serve_with(|config| Config {
        serving: ServeSettings { send_retry_after: true, ..ServeSettings::default() },
        ..config
    })
    .await;
    let mut slow = serving.connect(None).await;
    send(&mut slow, SLOW).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    serving.stop.cancel();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let late = serving.ask(Some(&serving.admin), "GET /version HTTP/1.1", b"").await;
    assert!(late.starts_with("HTTP/1.1 429") && late.contains("retry-after: 5"), "{late}");
    assert!(late.ends_with("The apiserver is shutting down, please try again later.\n"), "{late}");
    let ready = serving.ask(Some(&serving.admin), "GET /readyz HTTP/1.1", b"").await;
    assert!(ready.starts_with("HTTP/1.1 500"), "{ready}");
    let live = serving.ask(Some(&serving.admin), "GET /livez HTTP/1.1", b"").await;
    assert!(live.starts_with("HTTP/1.1 200"), "{live}");
    assert!(receive(&mut slow).await.starts_with("HTTP/1.1 504"), "the running request is answered");
    tokio::time::timeout(Duration::from_secs(15), serving.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(serving.address).await.is_err());
}

#[tokio::test]
async fn a_body_that_stops_coming_does_not_keep_the_server_from_stopping() {
    let serving = serve_with(|config| Config { request_timeout: Duration::from_secs(2), ..config }).await;
    let mut stream = serving.connect(None).await;
    let head = "POST /api/v1/namespaces HTTP/1.1\r\ncontent-length: 1000";
    send(&mut stream, head).await;
    stream.write_all(b"{").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    serving.stop.cancel();
    assert!(receive(&mut stream).await.starts_with("HTTP/1.1 504"));
    tokio::time::timeout(Duration::from_secs(15), serving.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_to_a_pod_lasts_until_the_server_stops() {
    let kubelet = FakeKubelet::new(|request| async {
        process(request, |process| async move {
            let (mut stdin, mut stdout) = (process.stdin.unwrap(), process.stdout.unwrap());
            let _ = tokio::io::copy(&mut stdin, &mut stdout).await;
        })
    });
    let serving = serve_with(|config| {
        let egress = EgressConfig { dial: Arc::new(kubelet.clone()), ..config.egress.clone() };
        Config { egress, ..config }
    })
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    for (method, path, body) in [
        ("POST", "/api/v1/nodes", r#"{"metadata":{"name":"n"}}"#),
        (
            "PUT",
            "/api/v1/nodes/n/status",
            r#"{"metadata":{"name":"n"},"status":{"addresses":[{"type":"Hostname","address":"n"}]}}"#,
        ),
        ("POST", "/api/v1/namespaces/default/serviceaccounts", r#"{"metadata":{"name":"default"}}"#),
        (
            "POST",
            pods,
            r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}"#,
        ),
    ] {
        let answer =
            serving.ask(Some(&serving.admin), &format!("{method} {path} HTTP/1.1"), body.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
    }
    let path = format!("{pods}/a/exec?command=cat&stdin=1&stdout=1");
    let protocols = ("sec-websocket-protocol", &*format!("{TOKEN}, v5.channel.k8s.io"));
    let mut socket = open(&serving, &path, &[protocols]).await.unwrap();
    socket.send(Message::binary(b"\0hello".to_vec())).await.unwrap();
    let mut received = Vec::new();
    while received.len() < 2 {
        received.push(socket.next().await.unwrap().unwrap().into_data());
    }
    assert_eq!(received, [&b"\x01"[..], b"\x01hello"]);

    let mut raw = serving.connect(Some(&serving.admin)).await;
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n");
    raw.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    raw.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    assert_eq!(kubelet.open(), 2);
    let heads = kubelet.take_heads();
    assert_eq!(heads[1].headers["x-forwarded-for"], "127.0.0.1");
    serving.stop.cancel();
    tokio::time::timeout(Duration::from_secs(9), serving.task)
        .await
        .expect("shutdown does not wait for them")
        .unwrap();
    kubelet.closed().await;
}
