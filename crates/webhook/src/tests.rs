use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzEncoder;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use setpoint_clock::{Clock, Rng};

use crate::client::MAX_CONCURRENT_CALLS;
use crate::{
    CallError, Cidr, Client, Dial, Dialed, Endpoint, GuardedTcp, Settings, TlsSettings, WebhookResponse,
};

/// How the server handles the next call. The last one is repeated.
#[derive(Clone)]
enum Reply {
    WebhookResponse(u16, &'static [(&'static str, &'static str)], Bytes),
    Hang,
    Close,
    /// Sends the beginning of a body, then closes the connection.
    Break,
    /// Sends the beginning of a body, and no more.
    Stall,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body with this beginning.
fn begun(rest: impl Stream<Item = std::io::Result<Frame<Bytes>>> + Send + 'static) -> Body {
    let first = Frame::data(Bytes::from_static(b"{"));
    StreamBody::new(stream::iter([Ok(first)]).chain(rest)).boxed_unsync()
}

/// The server side of every connection, in this process.
#[derive(Clone)]
struct Fake {
    replies: Arc<Mutex<Vec<Reply>>>,
    seen: Arc<Mutex<Vec<String>>>,
    tls: Option<tokio_rustls::TlsAcceptor>,
}

impl Fake {
    fn new(replies: &[Reply]) -> Self {
        let replies = replies.iter().rev().cloned().collect();
        Self { replies: Arc::new(Mutex::new(replies)), seen: Arc::default(), tls: None }
    }

    fn next(&self) -> Reply {
        let mut replies = self.replies.lock();
        if replies.len() > 1 { replies.pop().unwrap() } else { replies[0].clone() }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let header =
            |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
        self.seen.lock().push(format!(
            "{} {} {} {} {} {}",
            head.method,
            head.uri.path_and_query().unwrap(),
            header("authorization"),
            header("user-agent"),
            header("accept-encoding"),
            String::from_utf8_lossy(&body)
        ));
        match self.next() {
            Reply::WebhookResponse(code, headers, body) => {
                let mut response = Response::builder().status(code);
                for (name, value) in headers {
                    response = response.header(*name, *value);
                }
                Ok(response.body(Full::new(body).map_err(|never| match never {}).boxed_unsync()).unwrap())
            }
            Reply::Hang => std::future::pending().await,
            Reply::Close => Err(std::io::Error::other("closed")),
            Reply::Break => {
                let breaking = async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Err(std::io::Error::other("broken"))
                };
                Ok(Response::new(begun(stream::once(breaking))))
            }
            Reply::Stall => Ok(Response::new(begun(stream::pending()))),
        }
    }

    fn calls(&self) -> usize {
        self.seen.lock().len()
    }
}

impl Dial for Fake {
    fn dial(&self, _: String, _: u16) -> BoxFuture<'static, std::io::Result<Dialed>> {
        let fake = self.clone();
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                let stream: Dialed = match fake.tls.clone() {
                    Some(tls) => match tls.accept(theirs).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => return,
                    },
                    None => Box::new(theirs),
                };
                let service = service_fn(move |request| fake.clone().answer(request));
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
            Ok(Box::new(ours) as Dialed)
        })
    }
}

fn client_of(fake: &Fake, url: &str, tls: TlsSettings, settings: Settings) -> Client {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let endpoint = Endpoint::new(url.parse().unwrap(), tls);
    Client::new(endpoint, settings, Arc::new(fake.clone()), clock, Rng::seeded(1)).unwrap()
}

fn client(fake: &Fake, settings: Settings) -> Client {
    client_of(fake, "http://hook.example/x", TlsSettings::default(), settings)
}

fn settings() -> Settings {
    Settings { sends_timeout: true, answer_bytes: 1000, ..Settings::default() }
}

async fn post(fake: &Fake) -> Result<WebhookResponse, CallError> {
    client(fake, settings()).post_with_backoff(&serde_json::json!({"a": 1}), |_| {}).await
}

fn ok(body: &'static str) -> Reply {
    Reply::WebhookResponse(200, &[("content-type", "application/json")], body.into())
}

#[tokio::test(start_paused = true)]
async fn a_call_carries_its_body_and_time_out_and_nothing_else() {
    let fake = Fake::new(&[ok("{}")]);
    assert_eq!(&*post(&fake).await.unwrap().body, b"{}");
    assert_eq!(*fake.seen.lock(), ["POST /x?timeout=30s - Go-http-client/1.1 gzip {\"a\":1}"]);
}

#[tokio::test(start_paused = true)]
async fn failures_that_pass_are_retried_five_times_in_all() {
    for code in [500, 504, 429] {
        let fake =
            Fake::new(&[Reply::WebhookResponse(code, &[("content-type", "application/json")], "x".into())]);
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let before = clock.instant();
        let error = post(&fake).await.unwrap_err();
        assert_eq!((fake.calls(), error.code()), (5, Some(code)));
        let waited = clock.instant().duration_since(before);
        assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(5), "{waited:?}");
    }
    let fake = Fake::new(&[Reply::WebhookResponse(500, &[], "".into()), ok("{}")]);
    assert!(post(&fake).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn failures_that_last_are_not_retried() {
    for code in [400, 401, 403, 404, 503, 301, 302, 307, 308] {
        let fake =
            Fake::new(&[Reply::WebhookResponse(code, &[("location", "http://other.example/")], "".into())]);
        let error = post(&fake).await.unwrap_err();
        assert_eq!((fake.calls(), error.code()), (1, Some(code)), "a redirect is not followed");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored() {
    let busy = Reply::WebhookResponse(429, &[("retry-after", "2")], "".into());
    let fake = Fake::new(&[busy.clone(), busy, ok("{}")]);
    assert!(post(&fake).await.is_ok());
    assert_eq!(fake.calls(), 3);
    let fake = Fake::new(&[Reply::WebhookResponse(429, &[("retry-after", "4000000000")], "".into())]);
    assert!(matches!(post(&fake).await, Err(CallError::Timeout { .. })), "but not longer than the time-out");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_costs_the_time_out() {
    let fake = Fake::new(&[Reply::Hang]);
    let settings = Settings { timeout: Duration::from_secs(3), ..settings() };
    let error = client(&fake, settings).post(Bytes::new()).await.unwrap_err();
    let expected = "Post \"http://hook.example/x?timeout=3s\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_refused() {
    let fake = Fake::new(&[Reply::WebhookResponse(200, &[], vec![b'x'; 1001].into())]);
    assert!(matches!(post(&fake).await, Err(CallError::TooLong { limit: 1000, .. })));
    assert_eq!(fake.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_an_error() {
    let fake = Fake::new(&[Reply::Close]);
    assert!(matches!(post(&fake).await, Err(CallError::Connection { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_does_not_end_is_described_as_in_v1_34() {
    let unread = "unexpected error when reading response body. Please retry. Original error: ";
    for (reply, expected) in [(Reply::Break, "unexpected EOF"), (Reply::Stall, "context deadline exceeded")] {
        let fake = Fake::new(&[reply]);
        let time = Duration::from_secs(3);
        let error = client(&fake, settings()).post_within(Bytes::new(), time).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{unread}{expected}"));
        assert_eq!(fake.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_may_have_hundreds_of_headers() {
    let headers: Vec<(&str, &str)> = (0..500).map(|_| ("x-some", "text")).collect();
    let fake = Fake::new(&[Reply::WebhookResponse(200, headers.leak(), "{}".into())]);
    assert_eq!(&*post(&fake).await.unwrap().body, b"{}");
}

fn compressed(text: &[u8]) -> Reply {
    let mut body = Vec::new();
    GzEncoder::new(text, Compression::fast()).read_to_end(&mut body).unwrap();
    Reply::WebhookResponse(200, &[("content-encoding", "gzip")], body.into())
}

#[tokio::test(start_paused = true)]
async fn a_compressed_response_is_read_and_bounded_by_what_it_expands_to() {
    let fake = Fake::new(&[compressed(b"{}"), compressed(&[b' '; 1001])]);
    assert_eq!(&*post(&fake).await.unwrap().body, b"{}");
    assert!(matches!(post(&fake).await, Err(CallError::TooLong { limit: 1000, .. })));
    let plain = Reply::WebhookResponse(200, &[("content-encoding", "gzip")], "not compressed".into());
    let error = post(&Fake::new(&[plain])).await.unwrap_err();
    assert!(error.to_string().ends_with("Original error: gzip: invalid header"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_servers_error_message_is_passed_on() {
    let status = r#"{"kind":"Status","status":"Failure","reason":"Forbidden","message":"not you"}"#;
    let fake =
        Fake::new(&[Reply::WebhookResponse(403, &[("content-type", "application/json")], status.into())]);
    assert_eq!(post(&fake).await.unwrap_err().to_string(), "not you");
    let fake =
        Fake::new(&[Reply::WebhookResponse(500, &[("content-type", "text/plain")], " broken\n".into())]);
    let expected = "an error on the server (\"broken\") has prevented the request from succeeding";
    assert_eq!(post(&fake).await.unwrap_err().to_string(), expected);
}

fn with_tls(fake: Fake) -> (Fake, Vec<u8>) {
    let key = rcgen::generate_simple_self_signed(["hook.example".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![key.cert.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    let pem = key.cert.pem().into_bytes();
    (Fake { tls: Some(Arc::new(config).into()), ..fake }, pem)
}

#[tokio::test(start_paused = true)]
async fn only_pinned_authorities_and_names_are_trusted() {
    let (fake, pem) = with_tls(Fake::new(&[ok("{}")]));
    let (_, other) = with_tls(Fake::new(&[ok("{}")]));
    let tls = |authorities: &[u8]| TlsSettings {
        authorities: Some(authorities.to_vec()),
        ..TlsSettings::default()
    };
    let call = |url: &str, tls: TlsSettings| {
        let client = client_of(&fake, url, tls, settings());
        async move { client.post(Bytes::new()).await }
    };
    assert!(call("https://hook.example/", tls(&pem)).await.is_ok());
    let error = call("https://hook.example/", tls(&other)).await.unwrap_err().to_string();
    let why = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(error.starts_with(&format!("Post \"https://hook.example/?timeout=30s\": {why}")), "{error}");
    let error = call("https://other.example/", tls(&pem)).await.unwrap_err().to_string();
    let why =
        "tls: failed to verify certificate: x509: certificate is valid for hook.example, not other.example";
    assert_eq!(error, format!("Post \"https://other.example/?timeout=30s\": {why}"));
    let named = TlsSettings { server_name: Some("hook.example".into()), ..tls(&pem) };
    assert!(call("https://other.example/", named).await.is_ok());
    let insecure = TlsSettings { is_insecure: true, ..TlsSettings::default() };
    assert!(call("https://other.example/", insecure).await.is_ok());
}

/// Answers every connection with some bytes.
struct Blurts(&'static [u8]);

impl Dial for Blurts {
    fn dial(&self, _: String, _: u16) -> BoxFuture<'static, std::io::Result<Dialed>> {
        let bytes = self.0;
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut theirs, bytes).await;
                std::future::pending::<()>().await;
            });
            Ok(Box::new(ours) as Dialed)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tls_is_recognized() {
    let tls = TlsSettings { is_insecure: true, ..TlsSettings::default() };
    let not_tls = "tls: first record does not look like a TLS handshake";
    for (bytes, by_client, by_proxy) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "http: server gave HTTP response to HTTPS client",
            not_tls,
        ),
        (b"<!DOCTYPE HTML>\r\n", not_tls, not_tls),
        (
            b"\x15\x03\x03\x00\x02\x02\x28",
            "remote error: tls: handshake failure",
            "remote error: tls: handshake failure",
        ),
    ] {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let endpoint = Endpoint::new("https://hook.example/x".parse().unwrap(), tls.clone());
        let dial = Arc::new(Blurts(bytes));
        let client = Client::new(endpoint, settings(), dial.clone(), clock, Rng::seeded(1)).unwrap();
        let error = client.post(Bytes::new()).await.unwrap_err().to_string();
        assert_eq!(error, format!("Post \"https://hook.example/x?timeout=30s\": {by_client}"));
        let transport = crate::Transport::new(&tls, dial).unwrap();
        let request = || Request::get("https://hook.example/x").body(crate::no_body()).unwrap();
        assert_eq!(transport.send_as_client(request()).await.unwrap_err().0, by_client);
        assert_eq!(transport.send(request()).await.unwrap_err().0, by_proxy);
    }
}

#[test]
fn a_status_code_has_the_message_of_v1_34() {
    let of = |code: u16| {
        crate::StatusError::of(StatusCode::from_u16(code).unwrap(), &http::HeaderMap::new(), b"said")
    };
    assert_eq!(of(401).message, "the server has asked for the client to provide credentials");
    assert_eq!(of(403).message, "said");
    let expected = "the server responded with the status code 302 but did not return more information";
    assert_eq!(of(302).message, expected);
}

/// Each call to an HTTP/1.1 server has its own connection.
#[tokio::test(start_paused = true)]
async fn a_flood_of_calls_does_not_take_all_connections() {
    let fake = Fake::new(&[Reply::Hang]);
    let client = client(&fake, settings());
    let calls = (0..2 * MAX_CONCURRENT_CALLS).map(|_| client.post(Bytes::from_static(b"{}")));
    let calls = futures::future::join_all(calls);
    let early = tokio::time::timeout(Duration::from_secs(1), calls);
    assert!(early.await.is_err(), "no one answers");
    assert_eq!(fake.calls(), MAX_CONCURRENT_CALLS);
    *fake.replies.lock() = vec![Reply::WebhookResponse(200, &[], Bytes::new())];
    client.post(Bytes::from_static(b"{}")).await.expect("those that gave up have left their turns");
}

#[tokio::test]
async fn a_denied_address_is_not_dialed_by_any_name() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let cidr = |text: &str| text.parse::<Cidr>().unwrap();
    let guarded = GuardedTcp::new([cidr("127.0.0.0/8"), cidr("::1/128")]);
    for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
        let error = guarded.dial(host.to_owned(), port).await.err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{host}");
    }
    for host in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
        let error = guarded.dial(host.to_owned(), port).await.err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{host} leads to loopback");
    }
    assert!(GuardedTcp::new(Cidr::link_local()).dial("127.0.0.1".into(), port).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_has_the_time_that_its_caller_gives_it() {
    let fake = Fake::new(&[Reply::Hang]);
    let client = client(&fake, settings());
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let before = clock.instant();
    let error = client.post_within(Bytes::from_static(b"{}"), Duration::from_millis(1500)).await.unwrap_err();
    assert_eq!(clock.instant() - before, Duration::from_millis(1500));
    assert_eq!(error.to_string(), "Post \"http://hook.example/x?timeout=2s\": context deadline exceeded");
}
