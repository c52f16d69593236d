//! Webhooks and API servers as functions of this process, for tests and simulations: called without sockets, in virtual
//! time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::dial::{Dial, Dialed};

pub use crate::local::forward;
pub use hyper::body::Body as HttpBody;

/// Responds to posted JSON. `None` closes the connection without a response.
type Handler = Arc<dyn Fn(Value) -> Answering + Send + Sync>;

/// Responds to every request to a host. `None` closes the connection without a response.
type Server = Arc<dyn Fn(Request<Bytes>) -> Answering + Send + Sync>;

type Answering = BoxFuture<'static, Option<Response<ResponseBody>>>;

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// An in-process network: hosts are sets of functions, and all other hosts refuse connections.
#[derive(Clone, Default)]
pub struct InProcess {
    hosts: Arc<Mutex<Hosts>>,
}

#[derive(Default)]
struct Hosts {
    /// By host and path.
    handlers: BTreeMap<(String, String), Handler>,
    /// By host.
    servers: BTreeMap<String, Server>,
}

/// The buffer size of one direction of a connection.
const PIPE_BYTES: usize = 64 << 10;
/// The largest request that a function is called with: more than the API server accepts from its own clients.
const REQUEST_BYTES: usize = 4 << 20;

impl InProcess {
    /// Registers a handler for a path of a host. The host of a Service is `NAME.NAMESPACE.svc`.
    pub fn handle(&self, host: &str, path: &str, handler: impl Fn(Value) -> Value + Send + Sync + 'static) {
        self.handle_with(host, path, move |posted| {
            std::future::ready(Some(json_response(200, &handler(posted))))
        });
    }

    /// Registers a handler that may take time, respond with an error, or close the connection (`None`).
    pub fn handle_with<F>(&self, host: &str, path: &str, handler: impl Fn(Value) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<Response<Full<Bytes>>>> + Send + 'static,
    {
        let handling = move |posted| {
            let answering = handler(posted);
            async move { answering.await.map(boxed) }.boxed()
        };
        self.hosts.lock().handlers.insert((host.to_owned(), path.to_owned()), Arc::new(handling));
    }

    /// Responds to every request to a host, except to the paths of its handlers. `None` closes the connection.
    pub fn serve_with<F>(&self, host: &str, server: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<Response<ResponseBody>>> + Send + 'static,
    {
        let serving = move |request| server(request).boxed();
        self.hosts.lock().servers.insert(host.to_owned(), Arc::new(serving));
    }

    /// A host refuses connections from now on.
    pub fn take_down(&self, host: &str) {
        let mut hosts = self.hosts.lock();
        hosts.servers.remove(host);
        hosts.handlers.retain(|(known, _), _| known != host);
    }

    fn knows(&self, host: &str) -> bool {
        let hosts = self.hosts.lock();
        hosts.servers.contains_key(host) || hosts.handlers.keys().any(|(known, _)| known == host)
    }

    async fn answer(
        self,
        host: Arc<str>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, io::Error> {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, REQUEST_BYTES).collect().await else {
            return Ok(empty(StatusCode::PAYLOAD_TOO_LARGE));
        };
        let body = body.to_bytes();
        let (handler, server) = {
            let hosts = self.hosts.lock();
            let handler = hosts.handlers.get(&(host.to_string(), head.uri.path().to_owned())).cloned();
            (handler, hosts.servers.get(&*host).cloned())
        };
        let answer = match (handler, server) {
            (Some(handler), _) => handler(serde_json::from_slice(&body).unwrap_or_default()).await,
            (None, Some(server)) => server(Request::from_parts(head, body)).await,
            (None, None) => Some(empty(StatusCode::NOT_FOUND)),
        };
        answer.ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }
}

/// Boxes the body of a response.
pub fn boxed<B>(response: Response<B>) -> Response<ResponseBody>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

fn empty(code: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(crate::transport::no_body());
    *response.status_mut() = code;
    response
}

impl Dial for InProcess {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        if !self.knows(&host) {
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

/// Returns a response with a JSON body.
pub fn json_response(code: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let media_type = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, media_type);
    response
}

/// Returns a response to an `AdmissionReview` that allows the request.
pub fn allow(review: &Value) -> Value {
    answer(review, json!({"allowed": true}))
}

/// Returns a response that denies the request.
pub fn deny(review: &Value, message: &str) -> Value {
    answer(review, json!({"allowed": false, "status": {"message": message}}))
}

/// Returns a response that allows the request and changes its object with a JSON patch.
pub fn patch(review: &Value, operations: &Value) -> Value {
    let patch = STANDARD.encode(operations.to_string());
    answer(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Returns a response to a `ConversionReview` with every object converted by a function, which gets the object and the
/// wanted API version. The version is set afterwards. An error fails the whole review.
pub fn convert(review: &Value, convert: impl Fn(Value, &str) -> Result<Value, String>) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().into_iter().flatten();
    let converted = objects.map(|object| {
        let mut converted = convert(object.clone(), to)?;
        converted["apiVersion"] = to.into();
        Ok(converted)
    });
    let mut response = match converted.collect::<Result<Vec<Value>, String>>() {
        Ok(objects) => json!({"convertedObjects": objects, "result": {"status": "Success"}}),
        Err(why) => json!({"convertedObjects": [], "result": {"status": "Failure", "message": why}}),
    };
    response["uid"] = request["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response})
}

fn answer(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
}
