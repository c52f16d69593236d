//! The local processes that stand in for pods, by an annotation.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::behaviour::annotation::BACKEND;
use crate::view::PodView;

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

type Connecting = BoxFuture<'static, io::Result<Box<dyn ByteStream>>>;

/// Opens connections to local processes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Backends(Arc<dyn Fn(SocketAddr) -> Connecting + Send + Sync>);

impl Backends {
    pub(crate) fn new(connect: impl Fn(SocketAddr) -> Connecting + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// Connects to the process that stands in for a port of a pod. An error says why there is none.
    pub(super) async fn connect(
        &self,
        pod: &PodView,
        uid: &str,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, String> {
        let refused = |why: String| {
            format!("failed to connect to localhost:{port} inside namespace {uid:?}, IPv4: {why}")
        };
        match address(pod)? {
            None => Err(refused(format!("dial tcp4 127.0.0.1:{port}: connect: connection refused ({HINT})"))),
            Some(address) => {
                let connected = (self.0)(address).await;
                connected.map_err(|why| refused(format!("{why} (from the annotation {BACKEND})")))
            }
        }
    }
}

/// The hint for a pod without a local process.
pub(super) const HINT: &str = "a simulated pod runs no process; annotate it with node.setpoint.dev/backend: 127.0.0.1:PORT to reach a local one";

/// Returns the process that a pod names. Loopback only: a user who may create pods must not be able to make the server
/// connect to other hosts.
pub(super) fn address(pod: &PodView) -> Result<Option<SocketAddr>, String> {
    let Some(named) = pod.metadata.annotations.get(BACKEND) else { return Ok(None) };
    let address = named.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback());
    let invalid = || {
        format!(
            "annotation {BACKEND} is {named:?}, expected a loopback address and port, such as 127.0.0.1:8443"
        )
    };
    address.map(Some).ok_or_else(invalid)
}
