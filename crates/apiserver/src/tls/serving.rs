//! A server's certificates and trusted CAs, replaced at run time.
//!
//! Open connections keep their TLS configuration; new ones get the current one. Client certificates are verified
//! against the current CAs on all connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;

use super::client::AnyClient;
use super::{
    Authority, ClientTrust, Identity, NamedCertificate, Protocol, SniCertificates, TlsError, certified,
};

/// A server's certificates and trusted CAs.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// The certificate for clients that ask for no name in `named`.
    pub certificate: Arc<CertifiedKey>,
    pub named: Vec<NamedCertificate>,
    pub clients: ClientTrust,
}

/// The TLS configuration of a server. Cheap to clone; clones share one.
#[derive(Clone)]
pub struct ServerTls {
    protocol: Protocol,
    current: Arc<RwLock<Arc<Current>>>,
}

/// The state derived from a presence.
struct Current {
    usual: Arc<ServerConfig>,
    by_address: BTreeMap<IpAddr, Arc<ServerConfig>>,
    clients: Arc<ClientTrust>,
}

impl ServerTls {
    /// Uses one certificate. Clients may present a certificate signed by the CA; they need not.
    pub fn new(server: &Identity, authority: &Authority) -> Result<Self, TlsError> {
        let certificate = Arc::new(certified(&server.certificate, &server.key)?);
        let clients = ClientTrust::new(&[&authority.identity().certificate])?;
        Self::presenting(Protocol::default(), &ServerIdentity { certificate, named: Vec::new(), clients })
    }

    pub fn presenting(protocol: Protocol, presence: &ServerIdentity) -> Result<Self, TlsError> {
        let current = Current::new(&protocol, presence)?;
        Ok(Self { protocol, current: Arc::new(RwLock::new(Arc::new(current))) })
    }

    /// Replaces the certificates and trusted CAs; on failure nothing changes.
    pub fn replace(&self, presence: &ServerIdentity) -> Result<(), TlsError> {
        let current = Arc::new(Current::new(&self.protocol, presence)?);
        *self.current.write() = current;
        Ok(())
    }

    /// Returns the configuration for a connection to this address of the server.
    pub(crate) fn config(&self, to: Option<IpAddr>) -> Arc<ServerConfig> {
        let current = self.current.read();
        to.and_then(|address| current.by_address.get(&address)).unwrap_or(&current.usual).clone()
    }

    /// Returns the current trust for client certificates.
    pub(crate) fn clients(&self) -> Arc<ClientTrust> {
        self.current.read().clients.clone()
    }
}

impl Current {
    fn new(protocol: &Protocol, presence: &ServerIdentity) -> Result<Self, TlsError> {
        let certificates = SniCertificates::new(presence.certificate.clone(), &presence.named)?;
        let config = |certificates: SniCertificates| config(protocol, &presence.clients, certificates);
        let by_address = certificates.by_address().into_iter();
        let by_address = by_address.map(|(address, certificates)| Ok((address, config(certificates)?)));
        Ok(Self {
            by_address: by_address.collect::<Result<_, TlsError>>()?,
            usual: config(certificates)?,
            clients: Arc::new(presence.clients.clone()),
        })
    }
}

fn config(
    protocol: &Protocol,
    clients: &ClientTrust,
    certificates: SniCertificates,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = AnyClient::with_ca_hints(protocol.provider().clone(), clients);
    let mut config = ServerConfig::builder_with_provider(protocol.provider().clone())
        .with_protocol_versions(protocol.versions())?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
