//! Connections to kubelets: logs, and the streams of exec, attach and port-forward.
//!
//! ```text
//!  client ── SPDY, WebSocket v4 ──────────────────► copied as it is ─────────────► kubelet
//!         ── WebSocket v5 ─► [`translate`] ─► SPDY streams ([`command`]) ────────► kubelet
//!         ── WebSocket, SPDY inside ─► [`spdy_in_websocket`] ─► SPDY bytes ─────────────────► kubelet
//!         ── GET ─► [`log`] ─────────────────────────────────────────────────────► kubelet
//! ```
//!
//! Invariants:
//! - A kubelet's address comes from its Node's status. The kubelet sees this server's certificate and no credentials of
//!   the client.
//! - If one side ends, so does the other. A disconnected client leaves nothing open.
//! - A stream that is idle for [`IDLE`] ends.

mod command;
pub(crate) mod log;
mod nodes;
mod spdy_in_websocket;
pub(crate) mod streams;
mod translate;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use setpoint_webhook::{ClientIdentity, Dial, TlsSettings, Transport};

pub(crate) use self::nodes::{Kubelet, is_proxyable, join};
use crate::aggregation::ProxyIdentity;
use crate::status::Status;
use crate::tunnel::IDLE;

/// The user agent of requests that this server makes itself, for logs and processes, as in v1.34.
const AGENT: HeaderValue = HeaderValue::from_static("Go-http-client/1.1");

/// How long closing a connection may take.
const CLOSE: Duration = Duration::from_secs(5);

/// The settings for connections to kubelets.
#[derive(Clone)]
pub struct KubeletConfig {
    /// The authorities that verify kubelets, as PEM (`--kubelet-certificate-authority`). Without them any certificate is
    /// accepted, as in v1.34.
    pub authorities: Option<Vec<u8>>,
    /// The certificate presented to kubelets (`--kubelet-client-certificate`, `--kubelet-client-key`).
    pub identity: ProxyIdentity,
    /// The types of node addresses to use, in order of preference (`--kubelet-preferred-address-types`).
    pub address_types: Vec<String>,
    /// The kubelet port of nodes that report none (`--kubelet-port`).
    pub port: u16,
    /// Opens connections to kubelets, if they do not use the common dialer.
    pub dial: Option<Arc<dyn Dial>>,
}

impl Default for KubeletConfig {
    fn default() -> Self {
        let address_types = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
        Self {
            authorities: None,
            identity: ProxyIdentity::default(),
            address_types: address_types.map(String::from).into(),
            port: 10250,
            dial: None,
        }
    }
}

/// The kubelets of a cluster, and the pods and Services that requests are proxied to.
pub(crate) struct Kubelets {
    config: KubeletConfig,
    /// To kubelets.
    dial: Arc<dyn Dial>,
    /// To pods, Services and other ports of nodes.
    pod_dial: Arc<dyn Dial>,
    kept: Mutex<Kept>,
}

/// Connections, kept until the client certificate for kubelets is replaced. Requests in progress keep their connection.
#[derive(Default)]
struct Kept {
    generation: u64,
    transports: [Option<Arc<Transport>>; 3],
}

/// Which certificates are verified and presented.
#[derive(Clone, Copy)]
enum Trust {
    /// A kubelet's certificate is verified, if there are authorities for it.
    Kubelet,
    /// The client asked to skip verification of the kubelet's certificate.
    AnyKubelet,
    /// No certificate is verified or presented.
    Pod,
}

impl Kubelets {
    pub(crate) fn new(config: KubeletConfig, pod_dial: Arc<dyn Dial>) -> Self {
        let dial = config.dial.clone().unwrap_or_else(|| pod_dial.clone());
        Self { config, dial, pod_dial, kept: Mutex::default() }
    }

    /// Connections to kubelets.
    pub(crate) fn transport(&self) -> Result<Arc<Transport>, Status> {
        self.connecting(Trust::Kubelet)
    }

    /// Connections to kubelets for clients that skip verification of their certificates.
    pub(crate) fn unverified(&self) -> Result<Arc<Transport>, Status> {
        self.connecting(Trust::AnyKubelet)
    }

    /// Connections to pods, Services and ports of nodes other than the kubelet's. As in v1.34 they are made by address,
    /// so no certificate could be verified, and none is presented.
    pub(crate) fn to_pods(&self) -> Result<Arc<Transport>, Status> {
        self.connecting(Trust::Pod)
    }

    fn connecting(&self, trust: Trust) -> Result<Arc<Transport>, Status> {
        let (generation, identity) = self.config.identity.current();
        let mut kept = self.kept.lock();
        if kept.generation != generation {
            *kept = Kept { generation, ..Kept::default() };
        }
        let place = &mut kept.transports[trust as usize];
        if let Some(transport) = place {
            return Ok(transport.clone());
        }
        let dial = if matches!(trust, Trust::Pod) { &self.pod_dial } else { &self.dial };
        let transport = Transport::new(&self.tls(trust, identity), dial.clone());
        let transport = Arc::new(transport.map_err(Status::internal)?);
        *place = Some(transport.clone());
        Ok(transport)
    }

    fn tls(&self, trust: Trust, identity: Option<ClientIdentity>) -> TlsSettings {
        let authorities = self.config.authorities.clone().filter(|_| matches!(trust, Trust::Kubelet));
        TlsSettings {
            is_insecure: authorities.is_none(),
            authorities,
            identity: identity.filter(|_| !matches!(trust, Trust::Pod)),
            // Logs and proxied responses last as long as the client wants. With HTTP/2 they would share one connection
            // per node, and block each other when its streams are used up.
            http1_only: true,
            ..TlsSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use setpoint_webhook::in_process::InProcess;

    use super::*;

    #[test]
    fn requests_to_kubelets_and_pods_do_not_share_connections() {
        let kubelets = Kubelets::new(KubeletConfig::default(), Arc::new(InProcess::default()));
        for trust in [Trust::Kubelet, Trust::AnyKubelet, Trust::Pod] {
            assert!(kubelets.tls(trust, None).http1_only);
        }
    }
}
