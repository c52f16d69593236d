//! Certificates: the cluster's own CA, what it signs, and how a server uses them.
//!
//! ```text
//!  tls.rs      the CA and the certificates it signs; PEM parsing
//!  serving.rs  a server's certificates and trusted CAs, replaced at run time
//!  names.rs    chooses the certificate for a client
//!  client.rs   client certificates: verification and users
//!  suites.rs   TLS versions and cipher suites by their flag names
//!  inspect.rs  reads a certificate's contents
//! ```

mod client;
mod inspect;
mod names;
mod serving;
mod suites;

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::auth::MASTERS;

pub use client::{AnyClient, ClientTrust, user_of};
pub(crate) use client::{ClientCertificate, Peer, organizations};
pub use inspect::CertificateInfo;
pub(crate) use inspect::{Bundled, bundled, pem};
pub use names::{NamedCertificate, SniCertificates};
pub use serving::{ServerIdentity, ServerTls};
pub use suites::{MinVersion, Protocol, SuiteError};

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// The CA of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority(Identity);

/// Why a certificate is not available.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot read the PEM of a certificate or key: {0}")]
    Pem(rustls::pki_types::pem::Error),
    #[error("there is no private key in the PEM")]
    NoKey,
    #[error("there is no certificate in the PEM")]
    NoCertificate,
    #[error("the private key does not match the certificate")]
    Mismatch,
    #[error("cannot use the certificate")]
    Rustls(#[from] rustls::Error),
    #[error("cannot verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

const AUTHORITY_YEARS: i32 = 10;
const CERTIFICATE_YEARS: i32 = 1;

/// The server's DNS names inside the cluster.
pub const SERVER_NAMES: [&str; 6] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    LOOPBACK_NAME,
];

/// The SNI name that selects the server's own certificate, whatever other certificates it has.
pub const LOOPBACK_NAME: &str = "apiserver-loopback-client";

impl Authority {
    /// Generates a new CA.
    pub fn generate(now: Timestamp) -> Result<Self, TlsError> {
        Self::named("setpoint-ca", now)
    }

    /// Generates a new CA with this common name.
    pub fn named(name: &str, now: Timestamp) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params(name, now).self_signed(&key)?.pem();
        Ok(Self(Identity { certificate, key: key.serialize_pem() }))
    }

    /// Generates a successor of this CA, and its certificate cross-signed by this one (PEM): with that, clients that
    /// trust only the old CA trust what the new one signs.
    pub fn renewed(&self, now: Timestamp) -> Result<(Self, String), TlsError> {
        let key = KeyPair::generate()?;
        // A different name, so that the two cannot be confused.
        let params = authority_params(&format!("setpoint-ca@{}", now.as_second()), now);
        let certificate = params.self_signed(&key)?.pem();
        let cross_signed = params.signed_by(&key, &self.issuer()?)?.pem();
        Ok((Self(Identity { certificate, key: key.serialize_pem() }), cross_signed))
    }

    /// Loads an existing CA.
    pub fn from_pem(identity: Identity) -> Result<Self, TlsError> {
        certified(&identity.certificate, &identity.key)?;
        let authority = Self(identity);
        authority.issuer()?;
        Ok(authority)
    }

    /// Returns the CA's own certificate and key.
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

    /// Issues a certificate for a server with [`SERVER_NAMES`], 127.0.0.1 and these addresses.
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

    /// Issues a certificate for a user and their groups.
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

    /// Issues the administrator's certificate: `kubernetes-admin` of `system:masters`.
    pub fn admin_certificate(&self, now: Timestamp) -> Result<Identity, TlsError> {
        self.client_certificate("kubernetes-admin", &[MASTERS], now)
    }
}

fn authority_params(name: &str, now: Timestamp) -> CertificateParams {
    let mut params = params(name, &[], now, AUTHORITY_YEARS);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
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

/// Parses a certificate chain and its key from PEM.
pub fn certified(certificate: &str, key: &str) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let key = match PrivateKeyDer::from_pem_slice(key.as_bytes()) {
        Err(rustls::pki_types::pem::Error::NoItemsFound) => return Err(TlsError::NoKey),
        key => key.map_err(TlsError::Pem)?,
    };
    let certified = CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::Mismatch)
        }
        // A key that cannot provide its public half is accepted unchecked.
        Err(rustls::Error::InconsistentKeys(_)) | Ok(()) => Ok(certified),
        Err(error) => Err(error.into()),
    }
}

/// Parses the certificates in a PEM file; there must be at least one.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(TlsError::Pem)?;
    if found.is_empty() { Err(TlsError::NoCertificate) } else { Ok(found) }
}

/// Returns what is wrong with a CA bundle in base64-encoded PEM. It may be empty.
pub(crate) fn bundle_problem(bundle: &str) -> Option<String> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    if pem.is_empty() {
        return None;
    }
    let blocks: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
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
    use rcgen::DnValue;

    use super::*;

    fn now() -> Timestamp {
        "2025-03-04T05:06:07Z".parse().unwrap()
    }

    #[test]
    fn a_stored_authority_is_reused() {
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
    fn legacy_string_encodings_of_groups_are_read_and_unreadable_ones_rejected() {
        let authority = Authority::generate(now()).unwrap();
        let certificate = |organization: DnValue| {
            let mut params = params("jane", &[], now(), 1);
            params.distinguished_name.push(DnType::OrganizationName, organization);
            let signed = authority.sign(&params).unwrap();
            certificates(&signed.certificate).unwrap().remove(0)
        };
        let groups = |organization: DnValue| user_of(&certificate(organization)).map(|user| user.groups);
        let expected = Some(vec!["system:masters".to_owned(), "system:authenticated".to_owned()]);
        assert_eq!(groups(DnValue::TeletexString("system:masters".try_into().unwrap())), expected);
        assert_eq!(groups(DnValue::BmpString("system:masters".try_into().unwrap())), expected);
        assert_eq!(groups(DnValue::UniversalString("system:masters".try_into().unwrap())), None);
    }

    #[test]
    fn invalid_input_is_not_an_authority() {
        let garbage = Identity { certificate: "x".into(), key: "y".into() };
        assert!(Authority::from_pem(garbage).is_err());
    }

    #[test]
    fn a_key_of_another_certificate_is_noticed() {
        let (one, other) = (Authority::generate(now()).unwrap(), Authority::generate(now()).unwrap());
        let certificate = one.identity().certificate.clone();
        let mixed = Identity { certificate, key: other.identity().key.clone() };
        assert!(matches!(Authority::from_pem(mixed), Err(TlsError::Mismatch)));
        let empty = certified("", &one.identity().key);
        assert!(matches!(empty, Err(TlsError::NoCertificate)));
        assert!(matches!(certified(&one.identity().certificate, ""), Err(TlsError::NoKey)));
    }
}
