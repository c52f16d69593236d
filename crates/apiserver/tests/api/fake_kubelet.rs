//! A kubelet in this process: every connection of the server leads to it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::{Body, Config, Tunnel};
use setpoint_spdy::{Connection, FlowControl, Role, Settings, Stream};
use setpoint_webhook::{Dial, Dialed};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol;

use crate::client::Api;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const NODE: &str = "192.0.2.10";

pub(crate) type Answered = Response<UnsyncBoxBody<Bytes, io::Error>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answered> + Send + Sync>;

/// The kubelet of every node, and whatever else the server connects to. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct FakeKubelet {
    handler: Handler,
    heads: Arc<Mutex<Vec<Parts>>>,
    dialed: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
    /// Whether connections are refused.
    pub(crate) refuses: Arc<AtomicBool>,
}

impl FakeKubelet {
    pub(crate) fn new<F>(handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        Self {
            handler: Arc::new(move |request| handler(request).boxed()),
            heads: Arc::default(),
            dialed: Arc::default(),
            open: Arc::default(),
            refuses: Arc::default(),
        }
    }

    /// A server whose connections lead here, with a pod `a` on a node `n`. The pod has the container `c`.
    pub(crate) async fn start(&self) -> Api {
        self.start_changed(|config| config).await
    }

    pub(crate) async fn start_changed(&self, change: impl FnOnce(Config) -> Config) -> Api {
        let dial = Arc::new(self.clone());
        let connected = |config: Config| {
            let egress = EgressConfig { dial, ..config.egress.clone() };
            change(Config { egress, ..config })
        };
        let api = Api::start_changed(connected).await;
        api.default_service_account().await;
        api.post("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await.created();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": NODE}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        }});
        api.merge("/api/v1/nodes/n/status", status).await.ok();
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": "n"});
        api.post(PODS, json!({"metadata": {"name": "a"}, "spec": spec})).await.created();
        api
    }

    /// The heads of the requests so far.
    pub(crate) fn take_heads(&self) -> Vec<Parts> {
        std::mem::take(&mut self.heads.lock())
    }

    /// The path and query of the only request so far.
    pub(crate) fn take_target(&self) -> String {
        let heads = self.take_heads();
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads[0].uri.to_string()
    }

    pub(crate) fn take_dialed(&self) -> Vec<String> {
        std::mem::take(&mut self.dialed.lock())
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Waits until every connection is closed, in virtual time.
    pub(crate) async fn closed(&self) {
        for _ in 0..1000 {
            if self.open() == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("{} connections are left open", self.open());
    }
}

impl Dial for FakeKubelet {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        self.dialed.lock().push(format!("{host}:{port}"));
        if self.refuses.load(Ordering::SeqCst) {
            let why = format!("dial tcp {host}:{port}: connect: connection refused");
            return std::future::ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))).boxed();
        }
        let (ours, theirs) = duplex(16 << 10);
        let kubelet = self.clone();
        kubelet.open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let (handler, heads) = (kubelet.handler.clone(), kubelet.heads.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (head, body) = request.into_parts();
                // Its extensions would keep an upgraded connection open.
                let mut kept = head.clone();
                kept.extensions.clear();
                heads.lock().push(kept);
                let answering = handler(Request::from_parts(head, body));
                async move { Ok::<_, io::Error>(answering.await) }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            let serving = connection.serve_connection(TokioIo::new(Counted(theirs, kubelet.open)), service);
            let _ = serving.with_upgrades().await;
        });
        std::future::ready(Ok(Box::new(ours) as Dialed)).boxed()
    }

    fn is_in_process(&self, _: &str) -> bool {
        true
    }
}

/// A connection that counts as open until it is dropped.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A response with a text.
pub(crate) fn text(code: u16, content_type: &str, body: impl Into<Bytes>) -> Answered {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).header("content-type", content_type).body(body).unwrap()
}

/// A response whose body is sent as it arrives in a channel.
pub(crate) fn streaming(pieces: tokio::sync::mpsc::Receiver<Result<Bytes, io::Error>>) -> Answered {
    let frames = futures::stream::unfold(pieces, |mut pieces| async {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)))
}

/// The response that switches protocols, and what is done with the connection then.
pub(crate) fn switching<F>(
    mut request: Request<Incoming>,
    run: impl FnOnce(TokioIo<hyper::upgrade::Upgraded>) -> F + Send + 'static,
) -> Answered
where
    F: Future<Output = ()> + Send + 'static,
{
    let header = |name: &str| request.headers().get(name).cloned();
    let (kind, protocol) = (header("upgrade"), header("x-stream-protocol-version"));
    let mut response = text(101, "text/plain", "");
    let headers = response.headers_mut();
    headers.clear();
    headers.insert("connection", "Upgrade".parse().unwrap());
    headers.extend(kind.map(|kind| (http::header::UPGRADE, kind)));
    let name = http::HeaderName::from_static("x-stream-protocol-version");
    headers.extend(protocol.map(|protocol| (name, protocol)));
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            run(TokioIo::new(upgraded)).await;
        }
    });
    response
}

/// How much a kubelet and a container runtime have in their buffers: more than any test sends.
const RELAYED_BYTES: usize = 16 << 20;

/// The kubelet's side of a process.
pub(crate) struct Process {
    pub(crate) connection: Connection,
    pub(crate) error: Stream,
    pub(crate) stdin: Option<Stream>,
    pub(crate) stdout: Option<Stream>,
    pub(crate) stderr: Option<Stream>,
    pub(crate) resize: Option<Stream>,
}

/// Answers exec and attach: runs a process on the streams that the query asks for.
pub(crate) fn process<F>(
    request: Request<Incoming>,
    run: impl FnOnce(Process) -> F + Send + 'static,
) -> Answered
where
    F: Future<Output = ()> + Send + 'static,
{
    let query = request.uri().query().unwrap_or_default().to_owned();
    switching(request, |io| serve_process(io, query, Settings::default(), run))
}

/// Like [`process`], but the process is behind a container runtime, which has no flow control. As in real kubelets, bytes
/// are copied until one direction fails, and then both are closed, whatever the other one still has to send.
pub(crate) fn relayed_process<F>(
    request: Request<Incoming>,
    run: impl FnOnce(Process) -> F + Send + 'static,
) -> Answered
where
    F: Future<Output = ()> + Send + 'static,
{
    let query = request.uri().query().unwrap_or_default().to_owned();
    switching(request, |io| async move {
        let (near, far) = duplex(RELAYED_BYTES);
        let settings = Settings { flow_control: FlowControl::None, ..Settings::default() };
        tokio::spawn(serve_process(far, query, settings, run));
        let ((mut from_client, mut to_client), (mut from_runtime, mut to_runtime)) =
            (tokio::io::split(io), tokio::io::split(near));
        tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_runtime) => {}
            _ = tokio::io::copy(&mut from_runtime, &mut to_client) => {}
        }
    })
}

/// Runs a process on the streams that the query asks for.
async fn serve_process<F>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    query: String,
    settings: Settings,
    run: impl FnOnce(Process) -> F + Send,
) where
    F: Future<Output = ()> + Send,
{
    let (connection, driver) = setpoint_spdy::connect(io, Role::Server, settings);
    let driving = tokio::spawn(driver);
    let expected =
        1 + ["input=1", "output=1", "error=1", "tty=1"].iter().filter(|flag| query.contains(**flag)).count();
    let mut streams = std::collections::BTreeMap::new();
    while streams.len() < expected {
        let Some(incoming) = connection.accept().await else { return };
        let kind = incoming.headers().get("streamType").unwrap_or_default().to_owned();
        streams.insert(kind, incoming.accept());
    }
    let mut take = |kind: &str| streams.remove(kind);
    let process = Process {
        error: take("error").expect("there is always one"),
        stdin: take("stdin"),
        stdout: take("stdout"),
        stderr: take("stderr"),
        resize: take("resize"),
        connection,
    };
    run(process).await;
    let _ = driving.await;
}

/// Takes what follows a response that switches protocols, and runs it. Returns the client's side of the connection.
pub(crate) fn switched(response: &Response<Body>) -> DuplexStream {
    assert_eq!(response.status(), 101, "{response:?}");
    let tunnel = response.extensions().get::<Tunnel>().expect("a protocol follows").clone();
    let (near, far) = duplex(16 << 10);
    tokio::spawn(tunnel.run(far));
    near
}

pub(crate) type Socket = WebSocketStream<DuplexStream>;

/// Opens a WebSocket. Returns the subprotocol that the server chose.
pub(crate) async fn websocket(api: &Api, path: &str, protocols: &str) -> (Socket, String) {
    let response = api.send(Method::GET, path, &websocket_headers(protocols), "").await;
    let chosen = response.headers().get("sec-websocket-protocol");
    let chosen = chosen.map(|chosen| chosen.to_str().unwrap().to_owned()).unwrap_or_default();
    let near = switched(&response);
    (WebSocketStream::from_raw_socket(near, protocol::Role::Client, None).await, chosen)
}

pub(crate) fn websocket_headers(protocols: &str) -> [(&'static str, &str); 5] {
    [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", protocols),
    ]
}

pub(crate) const SPDY: [(&str, &str); 3] =
    [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
