//! The kubelet API of simulated nodes, served in process.
//!
//! ```text
//!  API server ─► Kubelets::connect ─► pipe ─► Server::serve ─► route.rs
//!                                                                ├─► logs.rs         containerLogs
//!                                                                ├─► remote.rs       exec and attach ─► spdy.rs, websocket.rs
//!                                                                ├─► attach.rs       what an attached client sees
//!                                                                ├─► forward.rs      portForward ─► a local process
//!                                                                └─► statistics.rs   pods, stats, metrics
//! ```
//!
//! Invariants:
//! - a connection ends with its node, with the manager that runs the nodes, and with the API server's side of it;
//! - connections are bounded, and so is what each of them buffers;
//! - a node only serves its own pods;
//! - nothing but loopback addresses is dialed for a pod.

mod attach;
mod backend;
mod forward;
mod interference;
mod logs;
mod outcome;
mod pipe;
mod registry;
mod remote;
mod request;
mod route;
mod spdy;
mod statistics;
mod websocket;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use setpoint::{Cached, Clock, Key, Lister, Queue};
use setpoint_placement::Resources;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use backend::ByteStream;
pub use interference::Lost;
pub use pipe::NodeConnection;
pub use registry::{ExecError, Executed, Kubelets};

use crate::address::Ranges;
use crate::fleet::Fleet;
use crate::outage::NodeView;
use crate::runtime::{EnterError, Entered, Entrance, Fates, Runtime};
use crate::view::PodView;
use backend::Backends;
use interference::Interference;

/// The maximum number of connections to all nodes. Each buffers some 100 KiB, and streams more.
const CONNECTIONS: usize = 1024;

/// As much as is under way in one direction of a connection.
const PIPE_BYTES: usize = 64 << 10;

/// Where nodes listen.
pub(crate) const PORT: u16 = 10250;

/// The kubelets of a fleet.
pub(crate) struct Server {
    pub(crate) clock: Clock,
    pub(crate) pods: Lister<PodView>,
    pub(crate) nodes: Lister<NodeView>,
    pub(crate) fleet: Fleet,
    pub(crate) runtime: Runtime,
    pub(crate) fates: Fates,
    /// Where pods are added whose containers a user has ended.
    pub(crate) queue: Queue<Key>,
    pub(crate) backends: Backends,
    pub(crate) interference: Interference,
    /// Cancelled when the nodes stop.
    pub(crate) stop: CancellationToken,
    pub(crate) connections: AtomicUsize,
}

/// A task of a connection that was upgraded.
type Upgrade = BoxFuture<'static, ()>;

/// Counts a connection while it exists.
struct Counted(Arc<Server>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A node, as its kubelet.
#[derive(Clone)]
struct Node {
    server: Arc<Server>,
    index: usize,
}

impl Server {
    /// Returns the ranges of addresses of a node's pods.
    fn ranges(&self, node_name: &str) -> Ranges {
        let node = self.nodes.get(&Key::cluster(node_name)).ok().flatten();
        node.map(|node| Ranges::of(&node.spec.pod_cidrs)).unwrap_or_default()
    }

    /// Opens a connection to a node. `None` if there are too many.
    fn connect(self: &Arc<Self>, index: usize) -> Option<NodeConnection> {
        let within = |count: usize| (count < CONNECTIONS).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        let counted = Counted(self.clone());
        let (ours, theirs, closed) = NodeConnection::new(PIPE_BYTES);
        let node = Node { server: self.clone(), index };
        tokio::spawn(async move {
            let _counted = counted;
            let (stop, outages) = (node.server.stop.clone(), node.server.fleet.outages().clone());
            let name = node.name().to_owned();
            // Data that was already sent can still be read.
            let abandoned = async {
                closed.cancelled().await;
                tokio::time::sleep(spdy::CLOSE).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = outages.wait_for_failure(&name) => {}
                () = abandoned => {}
                () = node.serve(theirs) => {}
            }
        });
        Some(ours)
    }
}

impl Node {
    fn name(&self) -> &str {
        &self.server.fleet.kubelet(self.index).name
    }

    /// Serves one connection, including its upgrade, until it ends.
    async fn serve(self, connection: DuplexStream) {
        // A connection is upgraded once.
        let (upgrades, mut upgraded) = mpsc::channel::<Upgrade>(1);
        let service = service_fn(move |request| self.clone().handle(request, upgrades.clone()));
        let http = hyper::server::conn::http1::Builder::new();
        let http = http.serve_connection(TokioIo::new(connection), service).with_upgrades();
        let mut tasks = FuturesUnordered::new();
        let mut serving = http.fuse();
        loop {
            tokio::select! {
                biased;
                ended = &mut serving => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection to a simulated node ended early");
                    }
                    break;
                }
                Some(task) = upgraded.recv() => tasks.push(task),
                Some(()) = tasks.next() => {}
            }
        }
        while let Ok(task) = upgraded.try_recv() {
            tasks.push(task);
        }
        while tasks.next().await.is_some() {}
    }

    /// Returns a pod of this node.
    fn pod(&self, namespace: &str, name: &str) -> Option<Cached<PodView>> {
        let found = self.server.pods.get(&Key::namespaced(namespace, name)).ok().flatten();
        found.filter(|pod| pod.spec.node_name == self.name())
    }

    fn allocatable(&self) -> Resources {
        let found = self.server.nodes.get(&Key::cluster(self.name())).ok().flatten();
        found.map(|node| node.status.allocatable.clone()).unwrap_or_default()
    }

    /// Enters a pod, with everything read that its containers use.
    async fn enter(&self, pod: &Cached<PodView>) -> Result<Entered, EnterError> {
        let allocatable = self.allocatable();
        let client = &self.server.fleet.kubelet(self.index).client;
        self.server.runtime.enter(pod.object(), Entrance { client, allocatable: &allocatable }).await
    }

    /// Reads the logs of a pod.
    async fn look(&self, pod: &Cached<PodView>) -> Result<Entered, EnterError> {
        let allocatable = self.allocatable();
        let client = &self.server.fleet.kubelet(self.index).client;
        self.server.runtime.look(pod.object(), Entrance { client, allocatable: &allocatable }).await
    }
}
