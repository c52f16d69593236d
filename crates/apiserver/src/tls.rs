//! Certificates: an authority of the cluster's own, and what it signs.
//!
//! Only the authority has to be kept between runs: what it signed before stays valid, and a server signs
//! itself a certificate for the names it has now.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use sha2::{Digest, Sha256};

use crate::auth::{MASTERS, User};

/// Which of their credentials somebody has shown.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Signs the certificates of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority(Identity);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot read the PEM of a certificate or key")]
    Pem(#[source] std::io::Error),
    #[error("there is no private key in the PEM")]
    NoKey,
    #[error("cannot use the certificate")]
    Rustls(#[from] rustls::Error),
    #[error("cannot verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

const AUTHORITY_YEARS: i32 = 10;
const CERTIFICATE_YEARS: i32 = 1;

/// The names by which programs in the cluster know the server.
pub const SERVER_NAMES: [&str; 5] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
];

impl Authority {
    /// A new authority.
    pub fn generate(now: Timestamp) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = params("setpoint-ca", &[], now, AUTHORITY_YEARS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self(Identity { certificate, key: key.serialize_pem() }))
    }

    /// An authority that was kept.
    pub fn from_pem(identity: Identity) -> Result<Self, TlsError> {
        let authority = Self(identity);
        authority.issuer()?;
        Ok(authority)
    }

    /// The authority's own certificate and key.
    pub fn identity(&self) -> &Identity {
        &self.0
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, TlsError> {
        let key = KeyPair::from_pem(&self.0.key)?;
        Ok(Issuer::from_ca_cert_pem(&self.0.certificate, key)?)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity, TlsError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer()?)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }

    /// A certificate for a server that is known by [`SERVER_NAMES`], 127.0.0.1 and these addresses.
    pub fn server_certificate(&self, addresses: &[IpAddr], now: Timestamp) -> Result<Identity, TlsError> {
        let mut params = params("kube-apiserver", &[], now, CERTIFICATE_YEARS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in SERVER_NAMES {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        let local: [IpAddr; 2] = [[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
        params
            .subject_alt_names
            .extend(local.iter().chain(addresses).map(|address| SanType::IpAddress(*address)));
        self.sign(&params)
    }

    /// A certificate for a user and their groups.
    pub fn client_certificate(
        &self,
        user: &str,
        groups: &[&str],
        now: Timestamp,
    ) -> Result<Identity, TlsError> {
        let mut params = params(user, groups, now, CERTIFICATE_YEARS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// The certificate of the administrator: `kubernetes-admin` of `system:masters`.
    pub fn admin_certificate(&self, now: Timestamp) -> Result<Identity, TlsError> {
        self.client_certificate("kubernetes-admin", &[MASTERS], now)
    }
}

fn params(name: &str, organizations: &[&str], now: Timestamp, years: i32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    // A day's slack for clocks that are behind.
    let today = now.to_zoned(TimeZone::UTC).date();
    let start = today.yesterday().unwrap_or(today);
    let end = today.checked_add(years.years()).unwrap_or(today);
    let midnight = |date: jiff::civil::Date| {
        date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = midnight(start);
    params.not_after = midnight(end);
    params
}

/// How a server presents itself, and whose certificates it believes.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    clients: Trust,
    front_proxies: Option<Trust>,
}

/// Authorities whose certificates count for one purpose.
#[derive(Clone)]
struct Trust(Arc<dyn ClientCertVerifier>);

/// What the client certificate of a connection shows.
pub(crate) struct Peer {
    /// The user of a certificate of the clients' authority; why there is none, if another was shown.
    pub(crate) user: Result<Option<Arc<User>>, String>,
    /// The common name of a certificate, if it is verified by the authority of front proxies. None without one.
    pub(crate) front_proxy: Option<Result<String, String>>,
}

impl Default for Peer {
    /// No certificate was shown.
    fn default() -> Self {
        Self { user: Ok(None), front_proxy: None }
    }
}

impl ServerTls {
    /// Clients may present a certificate of the authority; they need not.
    pub fn new(server: &Identity, authority: &Authority) -> Result<Self, TlsError> {
        Self::with_front_proxies(server, authority, None)
    }

    /// The same, and front proxies may present one of theirs, which PEM holds.
    pub fn with_front_proxies(
        server: &Identity,
        authority: &Authority,
        front_proxies: Option<&str>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = [authority.0.certificate.as_str()];
        let everyone: Vec<&str> = clients.into_iter().chain(front_proxies).collect();
        let key = rustls_pemfile::private_key(&mut server.key.as_bytes()).map_err(TlsError::Pem)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Trust::new(&everyone)?.0)
            .with_single_cert(certificates(&server.certificate)?, key.ok_or(TlsError::NoKey)?)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let front_proxies = front_proxies.map(|pem| Trust::new(&[pem])).transpose()?;
        Ok(Self { config: Arc::new(config), clients: Trust::new(&clients)?, front_proxies })
    }

    /// What a chain of certificates shows. The handshake accepts those of either authority; which one it was is
    /// found out here, by verifying the chain again.
    pub(crate) fn peer(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Peer {
        let Some(leaf) = chain.first() else { return Peer::default() };
        let user = self.clients.verify(chain, now).and_then(|()| user_of(leaf));
        let front_proxy = self.front_proxies.as_ref().map(|trust| {
            trust.verify(chain, now)?;
            common_name(leaf).ok_or_else(|| "the certificate has no common name".to_owned())
        });
        Peer { user: user.map(|user| user.map(Arc::new)), front_proxy }
    }
}

impl Trust {
    fn new(authorities: &[&str]) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for pem in authorities {
            for certificate in certificates(pem)? {
                roots.add(certificate)?;
            }
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self(verifier.allow_unauthenticated().build()?))
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<(), String> {
        let [leaf, intermediates @ ..] = chain else { return Err("there is no certificate".into()) };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
        let verified = self.0.verify_client_cert(leaf, intermediates, now);
        verified.map(drop).map_err(|why| format!("verifying certificate failed: {why}"))
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    rustls_pemfile::certs(&mut pem.as_bytes()).collect::<Result<_, _>>().map_err(TlsError::Pem)
}

/// What is wrong with authorities that somebody is to be believed by, as base64 of PEM. None may be given.
pub(crate) fn bundle_problem(bundle: &str) -> Option<String> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    if pem.is_empty() {
        return None;
    }
    let blocks: Vec<_> = rustls_pemfile::certs(&mut pem.as_slice()).filter_map(Result::ok).collect();
    let problems: Vec<_> = blocks
        .iter()
        .filter_map(|block| x509_parser::parse_x509_certificate(block).err())
        .map(|why| format!("failed to parse certificate: {why}"))
        .collect();
    let why = match problems.as_slice() {
        [] if blocks.is_empty() => "unable to parse bytes as PEM block",
        [first, ..] if problems.len() == blocks.len() => first,
        _ => return None,
    };
    Some(format!("unable to load root certificates: {why}"))
}

/// Users name their uid by this attribute of the subject: 1.3.6.1.4.1.57683.2.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_string();
    Some(name)
}

/// The user of a verified client certificate: its common name, with its organizations for groups.
fn user_of(certificate: &CertificateDer<'_>) -> Result<Option<User>, String> {
    let Some(name) = common_name(certificate).filter(|name| !name.is_empty()) else { return Ok(None) };
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|why| why.to_string())?;
    let subject = parsed.subject();
    let groups =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(Into::into).collect();
    let uids = subject.iter_attributes().filter(|one| one.attr_type().to_id_string() == UID_ATTRIBUTE);
    let uids: Result<Vec<&str>, _> = uids.map(|uid| uid.as_str()).collect();
    let uid = match uids.map_err(|_| "unable to parse UID into a string")?.as_slice() {
        [] => "",
        [""] => return Err("UID cannot be an empty string".into()),
        [uid] => uid,
        several => return Err(format!("expected 1 UID, but found multiple: {several:?}")),
    };
    let mut user = User { name, uid: uid.to_owned(), groups, ..User::default() }.known();
    user.extra.insert(CREDENTIAL_ID.into(), vec![format!("X509SHA256={:x}", Sha256::digest(certificate))]);
    Ok(Some(user))
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(a certificate and a key)")
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2025-03-04T05:06:07Z".parse().unwrap()
    }

    #[test]
    fn a_client_certificate_names_its_user_and_groups() {
        let authority = Authority::generate(now()).unwrap();
        let admin = authority.admin_certificate(now()).unwrap();
        let der = certificates(&admin.certificate).unwrap().remove(0);
        let user = user_of(&der).unwrap().unwrap();
        assert_eq!(user.name, "kubernetes-admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
    }

    #[test]
    fn a_certificate_counts_for_what_its_authority_is_for() {
        let (clients, proxies) = (Authority::generate(now()).unwrap(), Authority::generate(now()).unwrap());
        let server = clients.server_certificate(&[], now()).unwrap();
        let pem = &proxies.identity().certificate;
        let tls = ServerTls::with_front_proxies(&server, &clients, Some(pem)).unwrap();
        let chain = |authority: &Authority, name: &str| {
            let identity = authority.client_certificate(name, &[MASTERS], now()).unwrap();
            certificates(&identity.certificate).unwrap()
        };
        let admin = tls.peer(&chain(&clients, "admin"), now());
        assert_eq!(admin.user.unwrap().unwrap().name, "admin");
        assert!(admin.front_proxy.unwrap().is_err());
        let proxy = tls.peer(&chain(&proxies, "proxy"), now());
        assert!(proxy.user.is_err(), "a proxy is not one of its groups' members");
        assert_eq!(proxy.front_proxy, Some(Ok("proxy".to_owned())));
        let stranger = tls.peer(&chain(&Authority::generate(now()).unwrap(), "x"), now());
        assert!(stranger.user.is_err() && stranger.front_proxy.unwrap().is_err());
        let later = now() + jiff::SignedDuration::from_hours(24 * 800);
        assert!(tls.peer(&chain(&clients, "admin"), later).user.is_err(), "it has expired");
        let none = tls.peer(&[], now());
        assert!(none.user.unwrap().is_none() && none.front_proxy.is_none());
    }

    #[test]
    fn an_authority_that_was_kept_signs_on() {
        let first = Authority::generate(now()).unwrap();
        let kept = Authority::from_pem(first.identity().clone()).unwrap();
        let server = kept.server_certificate(&["10.0.0.1".parse().unwrap()], now()).unwrap();
        ServerTls::new(&server, &first).unwrap();
        let der = certificates(&server.certificate).unwrap().remove(0);
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len();
        assert_eq!(names, SERVER_NAMES.len() + 3);
        assert_eq!(parsed.validity().not_before.timestamp(), 1_740_960_000);
    }

    #[test]
    fn garbage_is_no_authority() {
        let garbage = Identity { certificate: "x".into(), key: "y".into() };
        assert!(Authority::from_pem(garbage).is_err());
    }
}
