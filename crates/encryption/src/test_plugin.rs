//! A KMS v2 plugin for tests: gRPC over a unix socket, with a key for each key ID. Its cipher protects nothing.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::kms::messages::*;

/// How the plugin responds.
#[derive(Clone)]
pub struct Behaviour {
    pub key_id: String,
    pub version: String,
    pub healthz: String,
    /// Rejects all calls with this code and message.
    pub failure: Option<(u8, String)>,
    /// Never responds.
    pub hangs: bool,
    pub annotation: String,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            key_id: "1".into(),
            version: "v2".into(),
            healthz: "ok".into(),
            failure: None,
            hangs: false,
            annotation: "local-kek.example.com".into(),
        }
    }
}

#[derive(Default)]
pub struct Seen {
    pub behaviour: Behaviour,
    /// The methods that were called.
    pub calls: Vec<String>,
}

pub struct KmsPlugin {
    pub seen: Arc<Mutex<Seen>>,
    socket: PathBuf,
    serving: JoinHandle<()>,
}

impl KmsPlugin {
    pub fn start(socket: &Path) -> Self {
        Self::start_with(socket, Arc::default())
    }

    /// Starts a plugin that shares the state of another one.
    pub fn start_with(socket: &Path, seen: Arc<Mutex<Seen>>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let serving = tokio::spawn(serve(listener, seen.clone()));
        Self { seen, socket: socket.to_owned(), serving }
    }

    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.seen.lock().behaviour);
    }

    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().calls)
    }
}

impl Drop for KmsPlugin {
    fn drop(&mut self) {
        self.serving.abort();
        _ = std::fs::remove_file(&self.socket);
    }
}

async fn serve(listener: UnixListener, seen: Arc<Mutex<Seen>>) {
    // Connections end with the plugin.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let seen = seen.clone();
        let service = service_fn(move |request| answer(request, seen.clone()));
        let connection =
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { _ = connection.await });
    }
}

type Answer = http_body_util::combinators::BoxBody<Bytes, Infallible>;

async fn answer(request: Request<Incoming>, seen: Arc<Mutex<Seen>>) -> Result<Response<Answer>, Infallible> {
    let method = request.uri().path().trim_start_matches("/v2.KeyManagementService/").to_owned();
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let behaviour = {
        let mut seen = seen.lock();
        seen.calls.push(method.clone());
        seen.behaviour.clone()
    };
    if behaviour.hangs {
        std::future::pending::<()>().await;
    }
    if let Some((code, message)) = behaviour.failure {
        let mut response = Response::new(Full::default().boxed());
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        response.headers_mut().insert("grpc-status", HeaderValue::from_str(&code.to_string()).unwrap());
        response.headers_mut().insert("grpc-message", HeaderValue::from_str(&message).unwrap());
        return Ok(response);
    }
    let message = carry_out(&method, &body[5..], behaviour);
    let mut framed = vec![0];
    framed.put_u32(message.len() as u32);
    framed.extend(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(framed)).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn carry_out(method: &str, message: &[u8], behaviour: Behaviour) -> Vec<u8> {
    let Behaviour { key_id, version, healthz, annotation, .. } = behaviour;
    match method {
        "Status" => StatusResponse { version, healthz, key_id }.encode_to_vec(),
        "Encrypt" => {
            let request = EncryptRequest::decode(message).unwrap();
            let ciphertext = masked(&request.plaintext, &key_id);
            let annotations = [(annotation, b"kek".to_vec())].into();
            EncryptResponse { ciphertext, key_id, annotations }.encode_to_vec()
        }
        "Decrypt" => {
            let request = DecryptRequest::decode(message).unwrap();
            assert_eq!(request.annotations.values().next().unwrap(), b"kek", "annotations come back");
            DecryptResponse { plaintext: masked(&request.ciphertext, &request.key_id) }.encode_to_vec()
        }
        other => panic!("an unknown method {other}"),
    }
}

/// A cipher for tests that is its own inverse.
fn masked(data: &[u8], key_id: &str) -> Vec<u8> {
    data.iter().zip(key_id.bytes().cycle()).map(|(byte, key)| byte ^ key ^ 0x5a).collect()
}
