//! The handle by which others reach simulated nodes and their pods.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint::{Cached, Key};
use tokio::sync::mpsc;

use super::backend::{self, Backends, ByteStream};
use super::interference::{Interference, Lost};
use super::{Node, NodeConnection, PORT, Server};
use crate::fleet::host_ip;
use crate::log::LogQuery;
use crate::process::ClientStreams;
use crate::view::PodView;

/// The simulated nodes of a process, whether or not they run at the moment. Cheap to clone.
#[derive(Clone)]
pub struct Kubelets {
    backends: Backends,
    interference: Interference,
    current: Arc<Mutex<Current>>,
}

#[derive(Default)]
struct Current {
    server: Weak<Server>,
    /// How many nodes there were last.
    nodes: usize,
}

/// The result of a command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Why a log cannot be read, or a command cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    #[error("no simulated node runs pod {0}")]
    NoPod(Key),
    #[error("{0}")]
    Refused(String),
}

impl Kubelets {
    /// `connect` opens connections to the local processes that stand in for pods.
    pub fn new(
        connect: impl Fn(SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            backends: Backends::new(connect),
            interference: Interference::default(),
            current: Arc::default(),
        }
    }

    pub(crate) fn backends(&self) -> Backends {
        self.backends.clone()
    }

    pub(crate) fn interference(&self) -> Interference {
        self.interference.clone()
    }

    /// Calls this before every request to a node is handled, to delay it or to lose its response.
    pub fn interfere(&self, with: impl Fn() -> BoxFuture<'static, Option<Lost>> + Send + Sync + 'static) {
        self.interference.set(with);
    }

    /// Sets the nodes that run.
    pub(crate) fn set(&self, server: &Arc<Server>, nodes: usize) {
        *self.current.lock() = Current { server: Arc::downgrade(server), nodes };
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.current.lock().server.upgrade().filter(|server| !server.stop.is_cancelled())
    }

    /// Returns the index of a node, by its name or address.
    fn index(&self, host: &str) -> Option<usize> {
        let nodes = self.current.lock().nodes;
        let index = match host.strip_prefix("node-") {
            Some(number) => number.parse().ok().filter(|index| format!("node-{index}") == host)?,
            None => index_of(host)?,
        };
        (index < nodes).then_some(index)
    }

    /// Whether a host is a simulated node, by its name or address.
    pub fn has(&self, host: &str) -> bool {
        self.index(host).is_some()
    }

    /// Connects to the kubelet of a simulated node. Call this only for hosts that [`has`](Self::has) holds for.
    pub fn connect(&self, host: &str, port: u16) -> io::Result<NodeConnection> {
        let refused = || {
            let why = format!("dial tcp {host}:{port}: connect: connection refused");
            io::Error::new(io::ErrorKind::ConnectionRefused, why)
        };
        let index = self.index(host).filter(|_| port == PORT).ok_or_else(refused)?;
        let server = self.server().ok_or_else(refused)?;
        if server.fleet.outages().has(&server.fleet.kubelet(index).name) {
            return Err(refused());
        }
        server.connect(index).ok_or_else(refused)
    }

    /// Returns where connections to an address of a simulated pod or node go: to the local process that stands in for it,
    /// or to none, with an error. `None` for any other address.
    pub fn stand_in(&self, host: &str, port: u16) -> Option<io::Result<SocketAddr>> {
        let address = host.parse::<IpAddr>().ok().filter(|address| !address.is_loopback())?;
        let server = self.server()?;
        let shown = address.to_string();
        let is_meant = |pod: &&Cached<PodView>| {
            pod.status.pod_ip.as_deref() == Some(&*shown)
                && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
                && server.fleet.index(&pod.spec.node_name).is_some()
                // The status can be written by others, and must not redirect connections to real hosts.
                && (self.has(host) || server.ranges(&pod.spec.node_name).has(address))
        };
        let pods = server.pods.list(None).ok()?;
        let pod = pods.iter().find(is_meant);
        if pod.is_none() && !self.has(host) {
            return None;
        }
        let stand_in = pod.map_or(Ok(None), |pod| backend::address(pod));
        let failed = |kind, why: String| io::Error::new(kind, format!("dial tcp {host}:{port}: {why}"));
        Some(match stand_in {
            Ok(Some(address)) => Ok(address),
            Ok(None) => {
                let why = format!("connect: connection refused ({})", backend::HINT);
                Err(failed(io::ErrorKind::ConnectionRefused, why))
            }
            Err(why) => Err(failed(io::ErrorKind::InvalidInput, why)),
        })
    }

    /// Returns the node of a pod.
    fn node_of(&self, pod: &Key) -> Result<Node, ExecError> {
        let missing = || ExecError::NoPod(pod.clone());
        let server = self.server().ok_or_else(missing)?;
        let found = server.pods.get(pod).ok().flatten().ok_or_else(missing)?;
        let index = server.fleet.index(&found.spec.node_name).ok_or_else(missing)?;
        if server.fleet.outages().has(&found.spec.node_name) {
            return Err(ExecError::Refused(format!("node {} has failed", found.spec.node_name)));
        }
        Ok(Node { server, index })
    }

    /// Returns the log of a container: that of its current run, or of the one before.
    pub async fn log(&self, pod: &Key, container: &str, is_previous: bool) -> Result<String, ExecError> {
        let node = self.node_of(pod)?;
        let query = LogQuery::of_run(is_previous);
        let namespace = pod.namespace().unwrap_or_default();
        let text = node.whole_log(namespace, pod.name(), container, &query).await;
        text.map(|text| String::from_utf8_lossy(&text).into_owned()).map_err(ExecError::Refused)
    }

    /// Runs a command in a container, with text as its input.
    pub async fn exec(
        &self,
        pod: &Key,
        container: &str,
        command: &[&str],
        stdin: &str,
    ) -> Result<Executed, ExecError> {
        let node = self.node_of(pod)?;
        let namespace = pod.namespace().unwrap_or_default();
        let prepared = node.prepare_exec(namespace, pod.name(), None, container);
        let prepared = prepared.await.map_err(|refusal| ExecError::Refused(refusal.text()))?;
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let (input, read) = mpsc::channel(1);
        let ((out, stdout), (err, stderr)) = (mpsc::channel(1), mpsc::channel(1));
        let streams =
            ClientStreams { stdin: Some(read), stdout: Some(out), stderr: Some(err), is_terminal: false };
        let typing = async move { _ = input.send(Bytes::copy_from_slice(stdin.as_bytes())).await };
        let running = prepared.run(&command, streams);
        let (code, (), stdout, stderr) = tokio::join!(running, typing, collect(stdout), collect(stderr));
        code.map(|code| Executed { code, stdout, stderr }).map_err(ExecError::Refused)
    }
}

/// The most output that a command may have here. What comes after it is dropped.
const OUTPUT_BYTES: usize = 16 << 20;

async fn collect(mut pieces: mpsc::Receiver<Bytes>) -> String {
    let mut all = Vec::new();
    while let Some(piece) = pieces.recv().await {
        let room = OUTPUT_BYTES.saturating_sub(all.len());
        all.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns the index of the node that has an address.
fn index_of(address: &str) -> Option<usize> {
    let mut numbers = address.strip_prefix("172.20.")?.split('.').map(|number| number.parse::<usize>().ok());
    let (hundreds, rest) = (numbers.next()??, numbers.next()??);
    let index = hundreds.checked_mul(250)?.checked_add(rest.checked_sub(1)?)?;
    (host_ip(index) == address).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_their_addresses() {
        for index in [0, 1, 249, 250, 12_345] {
            assert_eq!(index_of(&host_ip(index)), Some(index));
        }
        for other in ["172.20.0.0", "172.20.0.251", "172.20.1", "172.21.0.1", "172.20.0.01", "10.0.0.1"] {
            assert_eq!(index_of(other), None, "{other}");
        }
    }
}
