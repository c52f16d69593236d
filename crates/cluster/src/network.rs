//! The network of a cluster with simulated nodes: their kubelets and pods are in this process, everything else is dialed as
//! before.
//!
//! There are two ways out of the API server. Only the one to kubelets reaches simulated kubelets: they trust it as real
//! ones trust the API server's certificate. On the other one, which users choose addresses for, the address of a simulated
//! pod leads to the local process that stands in for it, or nowhere; the name or address of a simulated node leads
//! nowhere. Pods choose their processes themselves, so [`PodBackends`] says which ones are allowed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_apiserver::Config;
use setpoint_apiserver::egress::in_process::InProcess;
use setpoint_apiserver::egress::{Dial, Dialed};
use setpoint_node::{ByteStream, Kubelets};

/// The local processes that may stand in for simulated pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodBackends {
    /// None. Right wherever others than the owner of this machine may create pods.
    None,
    /// Any that listens on a loopback address, except the API server itself.
    #[default]
    Loopback,
}

/// Adds simulated nodes to the network of an API server. Returns what they are reached by.
pub(crate) fn add_nodes(config: &mut Config, backends: PodBackends) -> Kubelets {
    let outside = config.egress.dial.clone();
    let local = Local { outside: outside.clone(), backends, own_port: config.secure_port };
    let of_pods = local.clone();
    let kubelets = Kubelets::new(move |address| {
        let dialed = of_pods.dial(address);
        async move { dialed.await.map(|stream| Box::new(stream) as Box<dyn ByteStream>) }.boxed()
    });
    config.kubelets.dial =
        Some(Arc::new(ToKubelets { kubelets: kubelets.clone(), outside: outside.clone() }));
    config.egress.dial = Arc::new(ToPods { kubelets: kubelets.clone(), outside, local });
    kubelets
}

/// Adds a host with webhooks of this process to a server's network. They are registered with the result, at any time;
/// until then, the host refuses connections.
pub fn add_webhooks(config: &mut Config, host: &str) -> InProcess {
    let (own, outside) = (InProcess::default(), config.egress.dial.clone());
    config.egress.dial = Arc::new(ToOwnWebhooks { host: host.to_owned(), own: own.clone(), outside });
    own
}

/// The way to webhooks of this process.
struct ToOwnWebhooks {
    host: String,
    own: InProcess,
    outside: Arc<dyn Dial>,
}

impl Dial for ToOwnWebhooks {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        match host == self.host {
            true => self.own.dial(host, port),
            false => self.outside.dial(host, port),
        }
    }

    fn is_in_process(&self, host: &str) -> bool {
        host == self.host || self.outside.is_in_process(host)
    }
}

/// The way to the local processes that stand in for pods.
#[derive(Clone)]
struct Local {
    outside: Arc<dyn Dial>,
    backends: PodBackends,
    /// The API server's: it trusts connections from this machine no more than others, but proxies on the way may.
    own_port: u16,
}

impl Local {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Dialed>> {
        match self.refusal(address) {
            Some(why) => refused(io::ErrorKind::PermissionDenied, format!("dial tcp {address}: {why}")),
            None => self.outside.dial(address.ip().to_string(), address.port()),
        }
    }

    fn refusal(&self, address: SocketAddr) -> Option<&'static str> {
        match self.backends {
            PodBackends::None => Some(
                "local processes may not stand in for pods; to allow them, start with --pod-backends=loopback",
            ),
            PodBackends::Loopback if address.port() == self.own_port => {
                Some("the API server itself cannot stand in for a pod")
            }
            PodBackends::Loopback => None,
        }
    }
}

fn refused(kind: io::ErrorKind, why: String) -> BoxFuture<'static, io::Result<Dialed>> {
    std::future::ready(Err(io::Error::new(kind, why))).boxed()
}

/// The way to kubelets.
struct ToKubelets {
    kubelets: Kubelets,
    outside: Arc<dyn Dial>,
}

impl Dial for ToKubelets {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        if !self.kubelets.has(&host) {
            return self.outside.dial(host, port);
        }
        let connected = self.kubelets.connect(&host, port);
        std::future::ready(connected.map(|stream| Box::new(stream) as Dialed)).boxed()
    }

    fn is_in_process(&self, host: &str) -> bool {
        self.kubelets.has(host) || self.outside.is_in_process(host)
    }
}

/// The way to everything else.
struct ToPods {
    kubelets: Kubelets,
    outside: Arc<dyn Dial>,
    local: Local,
}

impl Dial for ToPods {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        match self.kubelets.stand_in(&host, port) {
            // A simulated node has no other ports, and its name must not be looked up.
            None if self.kubelets.has(&host) => {
                let why = format!("dial tcp {host}:{port}: connect: connection refused");
                refused(io::ErrorKind::ConnectionRefused, why)
            }
            None => self.outside.dial(host, port),
            Some(Ok(address)) => self.local.dial(address),
            Some(Err(why)) => std::future::ready(Err(why)).boxed(),
        }
    }

    fn is_in_process(&self, host: &str) -> bool {
        self.outside.is_in_process(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_processes_stand_in_for_pods() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let local = |backends| Local { outside: Arc::new(InProcess::default()), backends, own_port: 6443 };
        let allowed = local(PodBackends::Loopback);
        assert_eq!(allowed.refusal(address("127.0.0.1:8443")), None);
        for own in ["127.0.0.1:6443", "127.0.0.2:6443", "[::1]:6443"] {
            assert!(allowed.refusal(address(own)).is_some(), "{own} is the API server");
        }
        assert!(local(PodBackends::None).refusal(address("127.0.0.1:8443")).is_some());
    }
}
