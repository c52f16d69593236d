//! The listener for programs: plain HTTP on loopback, with a token per run.
//!
//! The token is the user name of basic authentication, in the server's URL and in the user of the kubeconfig: clients
//! do not send other credentials over plain HTTP.
//!
//! Bounds: 256 connections with one request at a time, and bodies of at most 4 MiB: a gigabyte in the worst case.
//! Operators run at most 64 programs at a time, which use a few connections each.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::header::{AUTHORIZATION, CONNECTION, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use super::access::{Access, MAX_BODY, status};

const MAX_CONNECTIONS: usize = 256;
/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const ACCEPTED_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How long the body of a request may take.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// Runs by the digest of their token, so that looking one up does not depend on how much of a guess is right.
type Runs = Arc<Mutex<BTreeMap<Vec<u8>, Arc<Access>>>>;

/// The listener. Dropping it closes it.
pub(crate) struct Gateway {
    address: SocketAddr,
    runs: Runs,
    serving: AbortHandle,
}

/// The entry of a run. Dropping it ends the run's access.
pub(crate) struct Entry {
    address: SocketAddr,
    token: String,
    key: Vec<u8>,
    runs: Runs,
    access: Arc<Access>,
}

impl Gateway {
    /// Listens on a free port of loopback.
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, runs) = (listener.local_addr()?, Runs::default());
        let serving = tokio::spawn(serve(listener, runs.clone())).abort_handle();
        Ok(Self { address, runs, serving })
    }

    /// Opens an access for a program.
    pub(crate) fn open(&self, access: Arc<Access>) -> Result<Entry, String> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).map_err(|_| "there is no randomness for a token")?;
        let token = URL_SAFE_NO_PAD.encode(random);
        let key = key_of(token.as_bytes());
        self.runs.lock().insert(key.clone(), access.clone());
        Ok(Entry { address: self.address, token, key, runs: self.runs.clone(), access })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Entry {
    /// Returns a kubeconfig for the program, as JSON.
    pub(crate) fn kubeconfig(&self, namespace: &str) -> String {
        let Self { address, token, .. } = self;
        let named =
            |field: &str, value: serde_json::Value| serde_json::json!([{"name": "setpoint", field: value}]);
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "setpoint",
            "clusters": named("cluster", serde_json::json!({"server": format!("http://{token}@{address}")})),
            "users": named("user", serde_json::json!({"username": token, "password": "unused"})),
            "contexts": named("context", serde_json::json!({
                "cluster": "setpoint", "user": "setpoint", "namespace": namespace,
            })),
        })
        .to_string()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.key);
        self.access.end();
    }
}

fn key_of(token: &[u8]) -> Vec<u8> {
    digest(&SHA256, token).as_ref().to_vec()
}

async fn serve(listener: TcpListener, runs: Runs) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open. Other connections end and free some.
            tokio::time::sleep(ACCEPTED_AGAIN_AFTER).await;
            continue;
        };
        let runs = runs.clone();
        connections.spawn(async move {
            let _place = place;
            serve_one(stream, runs).await;
        });
    }
}

async fn serve_one(stream: TcpStream, runs: Runs) {
    let service = service_fn(move |request| {
        let runs = runs.clone();
        async move { Ok::<_, Infallible>(answer(&runs, request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection of a program ended");
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

async fn answer(runs: &Runs, request: Request<Incoming>) -> Answer {
    let Some(access) = authenticate(runs, &request) else {
        return status(StatusCode::UNAUTHORIZED, "expected the token of a run").map(BodyExt::boxed_unsync);
    };
    let mut response = send(&access, request).await;
    *response.version_mut() = Version::HTTP_11;
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    // A watch or a log ends with its run.
    let ended = access.ended().clone().cancelled_owned();
    response.map(|body| until(body, ended))
}

async fn send(access: &Access, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let reading = tokio::time::timeout(BODY_WITHIN, Limited::new(body, MAX_BODY).collect());
    let body: Bytes = match reading.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            return status(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 4 MiB, or was cut off");
        }
        Err(_) => return status(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
    };
    access.send(Request::from_parts(head, body)).await
}

fn authenticate(runs: &Runs, request: &Request<Incoming>) -> Option<Arc<Access>> {
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let token = match header.split_once(' ')? {
        (scheme, credentials) if scheme.eq_ignore_ascii_case("basic") => {
            let decoded = STANDARD.decode(credentials.trim()).ok()?;
            decoded.split(|byte| *byte == b':').next()?.to_vec()
        }
        (scheme, token) if scheme.eq_ignore_ascii_case("bearer") => token.trim().as_bytes().to_vec(),
        _ => return None,
    };
    runs.lock().get(&key_of(&token)).cloned()
}

/// Cuts a body off when something ends.
fn until(body: Body, ended: impl Future<Output = ()> + Send + 'static) -> UnsyncBoxBody<Bytes, kube::Error> {
    let frames = BodyStream::new(body).try_filter_map(async |frame| Ok(frame.into_data().ok()));
    let frames = frames.map_ok(Frame::data).take_until(Box::pin(ended));
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use setpoint::{Client, Key, Kind};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::access::AccessOptions;
    use super::super::adoption::{Adoption, Owner};
    use super::*;

    /// An API server that answers with what it was sent.
    fn echo() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let names: Vec<&str> = head.headers.keys().map(http::HeaderName::as_str).collect();
            let said = json!({
                "kind": "Echo", "path": head.uri.path(), "headers": names,
                "body": serde_json::from_slice::<Value>(&body).unwrap_or_default(),
            });
            Ok::<_, kube::Error>(Response::new(Body::from(said.to_string().into_bytes())))
        });
        Client::new(kube::Client::new(service, "default"))
    }

    fn access() -> Arc<Access> {
        let kind = Kind::new("example.com", "v1", "Shop", "shops", true);
        let owner = Owner { kind, key: Key::namespaced("shop", "a"), uid: "u1".into() };
        Access::new(AccessOptions {
            client: echo(),
            adoption: Adoption { owner, controls: true, labels: BTreeMap::new() },
            marks: None,
            on_kind: Arc::new(|_| {}),
            shows_objects: false,
        })
    }

    /// Sends a request and returns the status and the body.
    async fn send(gateway: &Gateway, head: &str, token: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(gateway.address).await.expect("it listens");
        let credentials = STANDARD.encode(format!("{token}:unused"));
        let text = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Basic {credentials}\r\n\
             impersonate-user: admin\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        // It may answer before it has read everything.
        _ = stream.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        let start = body.find('{').unwrap_or(body.len());
        let end = body.rfind('}').map_or(start, |end| end + 1);
        (status, serde_json::from_str(&body[start..end]).unwrap_or_default())
    }

    const PODS: &str = "GET /api/v1/namespaces/shop/pods";

    #[tokio::test]
    async fn a_program_is_admitted_with_the_token_of_its_run_and_while_that_lasts() {
        let gateway = Gateway::start().await.expect("it listens");
        assert!(gateway.address.ip().is_loopback());
        let entry = gateway.open(access()).expect("an entry");
        let token = entry.token.clone();
        let (status, answer) = send(&gateway, PODS, &token, "").await;
        assert_eq!((status, &answer["path"]), (200, &json!("/api/v1/namespaces/shop/pods")));
        let headers = answer["headers"].to_string();
        assert!(!headers.contains("authorization") && !headers.contains("impersonate"), "{headers}");
        assert_eq!(send(&gateway, PODS, "guess", "").await.0, 401);
        let other = gateway.open(access()).expect("an entry");
        assert_ne!(other.token, token);
        let open = access();
        let still_open = gateway.open(open.clone()).expect("an entry");
        open.end();
        assert_eq!(send(&gateway, PODS, &still_open.token, "").await.0, 401, "its run is over");
        drop(entry);
        assert_eq!(send(&gateway, PODS, &token, "").await.0, 401);
    }

    #[tokio::test]
    async fn only_the_api_is_forwarded() {
        let gateway = Gateway::start().await.expect("it listens");
        let entry = gateway.open(access()).expect("an entry");
        let status = async |head: &str| send(&gateway, head, &entry.token, "").await.0;
        assert_eq!(status("GET /metrics").await, 403);
        assert_eq!(status("GET /api/../metrics").await, 403);
        assert_eq!(status("GET /openapi/v3").await, 200);
        let too_long = "x".repeat(MAX_BODY + 1);
        let created = "POST /api/v1/namespaces/shop/configmaps";
        assert_eq!(send(&gateway, created, &entry.token, &too_long).await.0, 413);
        assert_eq!(send(&gateway, created, &entry.token, "[1]").await.0, 400);
    }

    #[tokio::test]
    async fn created_objects_get_their_owner() {
        let gateway = Gateway::start().await.expect("it listens");
        let entry = gateway.open(access()).expect("an entry");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}).to_string();
        let (_, answer) =
            send(&gateway, "POST /api/v1/namespaces/shop/configmaps", &entry.token, &body).await;
        assert_eq!(answer["body"]["metadata"]["ownerReferences"][0]["uid"], "u1");
        let (_, answer) =
            send(&gateway, "POST /api/v1/namespaces/shop/pods/a/eviction", &entry.token, &body).await;
        assert_eq!(answer["body"]["metadata"].get("ownerReferences"), None, "a subresource is not stored");
        let writes: Vec<_> =
            entry.access.writes().iter().map(|write| format!("{} {}", write.verb, write.key)).collect();
        assert_eq!(writes, ["created shop/m"]);
    }

    #[tokio::test]
    async fn a_kubeconfig_has_the_token_where_clients_look_for_it() {
        let gateway = Gateway::start().await.expect("it listens");
        let entry = gateway.open(access()).expect("an entry");
        let config: Value = serde_json::from_str(&entry.kubeconfig("shop")).expect("JSON");
        let server = config["clusters"][0]["cluster"]["server"].as_str().expect("a URL");
        assert_eq!(server, format!("http://{}@{}", entry.token, gateway.address));
        assert_eq!(config["users"][0]["user"]["username"], entry.token.as_str());
        assert_eq!(config["contexts"][0]["context"]["namespace"], "shop");
    }
}
