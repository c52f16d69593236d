//! Connections to extension API servers.
//!
//! Each APIService has its own pool, replaced when its Service, its CA bundle or this server's client certificate
//! changes. Requests in progress keep their connection.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use setpoint_webhook::{Address, ClientIdentity, Dial, Resolve, TlsSettings, Transport};

use super::services::{ApiServices, Remote};
use crate::egress::ServiceResolver;

/// A client certificate of this server: presented to the servers behind APIServices (`--proxy-client-cert-file`) or to
/// kubelets (`--kubelet-client-certificate`). It can be replaced at any time. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct ProxyIdentity(Arc<RwLock<(u64, Option<ClientIdentity>)>>);

impl ProxyIdentity {
    /// Creates the certificate from PEM: a certificate and its key.
    pub fn new(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let identity = Self::default();
        identity.replace(certificate, key);
        identity
    }

    /// Uses another certificate for new connections.
    pub fn replace(&self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) {
        let new = ClientIdentity { certificate: certificate.into(), key: key.into() };
        let (generation, current) = &mut *self.0.write();
        *generation += 1;
        *current = Some(new);
    }

    pub(crate) fn current(&self) -> (u64, Option<ClientIdentity>) {
        self.0.read().clone()
    }
}

/// The pools.
pub(super) struct Backends {
    dial: Arc<dyn Dial>,
    resolver: ServiceResolver,
    identity: ProxyIdentity,
    /// By the name of the APIService: at most one each.
    kept: Mutex<BTreeMap<Box<str>, Kept>>,
    /// The generation of the APIServices that the pools belong to.
    generation: AtomicU64,
}

struct Kept {
    remote: Arc<Remote>,
    identity: u64,
    transport: Arc<Transport>,
}

impl Backends {
    pub(super) fn new(dial: Arc<dyn Dial>, resolver: ServiceResolver, identity: ProxyIdentity) -> Self {
        Self { dial, resolver, identity, kept: Mutex::default(), generation: AtomicU64::new(0) }
    }

    /// Returns the pool of an APIService. The error is shown to the client.
    pub(super) fn transport(&self, name: &str, remote: &Arc<Remote>) -> Result<Arc<Transport>, String> {
        let (generation, identity) = self.identity.current();
        let mut kept = self.kept.lock();
        if let Some(known) = kept.get(name)
            && known.identity == generation
            && known.remote == *remote
        {
            return Ok(known.transport.clone());
        }
        let transport = Arc::new(self.connecting(remote, remote.is_insecure, identity)?);
        let new = Kept { remote: remote.clone(), identity: generation, transport: transport.clone() };
        kept.insert(name.into(), new);
        Ok(transport)
    }

    /// Returns a transport for a probe, which as in v1.34 accepts any certificate.
    pub(super) fn probing(&self, remote: &Remote) -> Result<Transport, String> {
        self.connecting(remote, true, self.identity.current().1)
    }

    fn connecting(
        &self,
        remote: &Remote,
        is_insecure: bool,
        identity: Option<ClientIdentity>,
    ) -> Result<Transport, String> {
        let host = remote.service.host();
        let tls = TlsSettings {
            authorities: (!remote.ca_bundle.is_empty()).then(|| remote.ca_bundle.clone()),
            // There is no TLS within this process, so the system's CAs need not be loaded.
            is_insecure: is_insecure || self.dial.is_in_process(&host),
            server_name: Some(host),
            identity,
            http1_only: false,
        };
        Transport::new(&tls, self.dial.clone()).map_err(|why| why.to_string())
    }

    /// Finds an endpoint of a Service: `ADDRESS:PORT`.
    pub(super) async fn resolve(&self, remote: &Remote) -> io::Result<String> {
        let host = remote.service.host();
        let Address { host, port } = match self.dial.is_in_process(&host) {
            true => Address { host, port: remote.service.port },
            false => self.resolver.resolve(remote.service.clone()).await?,
        };
        Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }

    /// Drops the pools of deleted APIServices. Cheap while nothing changes.
    pub(super) fn keep(&self, services: &ApiServices) {
        if self.generation.swap(services.generation(), Ordering::Relaxed) != services.generation() {
            let is_remote = |name: &str| services.get(name).is_some_and(|service| service.remote.is_some());
            self.kept.lock().retain(|name, _| is_remote(name));
        }
    }
}
