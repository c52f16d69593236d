//! Webhooks that are functions of this process, for tests and simulations: called without sockets, in virtual time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::dial::{Dial, Dialed};

/// Answers the JSON that is posted to it.
type Handler = Arc<dyn Fn(Value) -> Value + Send + Sync>;

/// The network of a world that has none: hosts are sets of functions, and every other host refuses connections.
#[derive(Clone, Default)]
pub struct InProcess {
    /// By host and path.
    handlers: Arc<Mutex<BTreeMap<(String, String), Handler>>>,
}

/// As much as is under way in one direction of a connection.
const PIPE_BYTES: usize = 64 << 10;

impl InProcess {
    /// Answers what is posted to a path of a host. The host of a Service is `NAME.NAMESPACE.svc`.
    pub fn handle(&self, host: &str, path: &str, handler: impl Fn(Value) -> Value + Send + Sync + 'static) {
        self.handlers.lock().insert((host.to_owned(), path.to_owned()), Arc::new(handler));
    }

    async fn answer(
        self,
        host: Arc<str>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let handler = self.handlers.lock().get(&(host.to_string(), path)).cloned();
        let Some(handler) = handler else {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return Ok(missing);
        };
        let answer = handler(serde_json::from_slice(&body).unwrap_or_default());
        Ok(Response::new(Full::new(answer.to_string().into())))
    }
}

impl Dial for InProcess {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        if !self.handlers.lock().keys().any(|(known, _)| *known == host) {
            let why = format!("dial tcp {host}:{port}: connect: connection refused");
            return std::future::ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))).boxed();
        }
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (server, host) = (self.clone(), Arc::<str>::from(host));
        // Ends with the connection, which the client's pool closes.
        tokio::spawn(async move {
            let service = service_fn(move |request| server.clone().answer(host.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(theirs), service).await;
        });
        std::future::ready(Ok(Box::new(ours) as Dialed)).boxed()
    }

    fn is_in_process(&self, _: &str) -> bool {
        true
    }
}

/// The answer to an `AdmissionReview` that allows the request.
pub fn allow(review: &Value) -> Value {
    answer(review, json!({"allowed": true}))
}

/// The answer that denies the request.
pub fn deny(review: &Value, message: &str) -> Value {
    answer(review, json!({"allowed": false, "status": {"message": message}}))
}

/// The answer that allows the request and changes its object by a JSON patch.
pub fn patch(review: &Value, operations: &Value) -> Value {
    let patch = STANDARD.encode(operations.to_string());
    answer(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

fn answer(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
}
