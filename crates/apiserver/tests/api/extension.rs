//! The other side of the server's outgoing calls: webhooks and issuers, in this process and over TLS.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_apiserver::auth::Outbound;
use setpoint_clock::{Clock, Rng};
use setpoint_webhook::{Dial, Dialed};
use tokio_rustls::TlsAcceptor;

/// The response to requests for a path.
pub(crate) enum Reply {
    Json(Value),
    Code(u16, Vec<(&'static str, String)>, Bytes),
    Hang,
    /// Closes the connection without a response.
    Close,
    /// Responds after a while.
    After(Duration, Value),
}

type Handler = Arc<dyn Fn(&str, &Value) -> Reply + Send + Sync>;

/// A server that every connection leads to.
#[derive(Clone)]
pub(crate) struct Extension {
    handler: Handler,
    tls: TlsAcceptor,
    pub(crate) authority: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    heads: Arc<Mutex<Vec<http::request::Parts>>>,
    dialed: Arc<Mutex<Vec<String>>>,
    /// Whether connections are refused.
    pub(crate) refuses: Arc<AtomicBool>,
}

impl Extension {
    pub(crate) fn new(handler: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let own = rcgen::generate_simple_self_signed(["ext.example".to_owned(), "*.default.svc".to_owned()])
            .unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        Self {
            handler: Arc::new(handler),
            tls,
            authority: own.cert.pem(),
            seen: Arc::default(),
            heads: Arc::default(),
            dialed: Arc::default(),
            refuses: Arc::default(),
        }
    }

    /// The heads of the requests so far.
    pub(crate) fn take_heads(&self) -> Vec<http::request::Parts> {
        std::mem::take(&mut self.heads.lock())
    }

    /// The addresses that were dialed so far.
    pub(crate) fn take_dialed(&self) -> Vec<String> {
        std::mem::take(&mut self.dialed.lock())
    }

    /// Takes the requests so far: path and body.
    pub(crate) fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.seen.lock())
    }

    pub(crate) fn outbound(&self, clock: &Clock) -> Outbound {
        Outbound { dial: Arc::new(self.clone()), ..Outbound::new(clock.clone(), Rng::seeded(7)) }
    }

    /// Creates a kubeconfig for this server.
    pub(crate) fn kubeconfig(&self, path: &str) -> Temporary {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.authority);
        let cluster =
            json!({"server": format!("https://ext.example{path}"), "certificate-authority-data": authority});
        let config = json!({
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "hook"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        Temporary::new(&config.to_string())
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let path = head.uri.path().to_owned();
        self.seen.lock().push((path.clone(), body.clone()));
        self.heads.lock().push(head);
        match (self.handler)(&path, &body) {
            Reply::Json(value) => {
                let response = Response::builder().header("content-type", "application/json");
                Ok(response.body(Full::new(value.to_string().into())).unwrap())
            }
            Reply::Code(code, headers, body) => {
                let mut response = Response::builder().status(code);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                Ok(response.body(Full::new(body)).unwrap())
            }
            Reply::Hang => std::future::pending().await,
            Reply::After(time, value) => {
                tokio::time::sleep(time).await;
                let response = Response::builder().header("content-type", "application/json");
                Ok(response.body(Full::new(value.to_string().into())).unwrap())
            }
            Reply::Close => Err(std::io::Error::other("closed")),
        }
    }
}

impl Dial for Extension {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, std::io::Result<Dialed>> {
        let extension = self.clone();
        self.dialed.lock().push(format!("{host}:{port}"));
        Box::pin(async move {
            if extension.refuses.load(Ordering::Relaxed) {
                let why = format!("dial tcp {host}:{port}: connect: connection refused");
                return Err(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, why));
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                let Ok(stream) = extension.tls.clone().accept(theirs).await else { return };
                let service = service_fn(move |request| extension.clone().answer(request));
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
            Ok(Box::new(ours) as Dialed)
        })
    }
}

/// A file that is deleted on drop.
pub(crate) struct Temporary(tempfile::NamedTempFile);

impl Temporary {
    pub(crate) fn new(text: &str) -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Self(file)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.0.path(), text).unwrap();
    }
}
