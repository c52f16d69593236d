//! Client certificates: verification, and the user they identify.
//!
//! The handshake only proves that the client holds the certificate's key. As in v1.34, the certificate is verified on
//! each request: if it has expired or its CA is no longer trusted, the response is 401, even on an open connection. A
//! verdict is cached until it can change, so it costs a comparison per request.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use setpoint_webhook::Signatures;
use sha2::{Digest, Sha256};
use x509_parser::asn1_rs::{Oid, Tag};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::{ServerTls, TlsError, certificates};
use crate::auth::{FrontProxy, User};

/// The credential ID of a request, for audit.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The subject attribute with the user's uid: 1.3.6.1.4.1.57683.2.
const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// The CAs trusted to sign client certificates.
#[derive(Clone, Debug)]
pub struct ClientTrust {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    front_proxies: Option<Arc<dyn ClientCertVerifier>>,
    hints: Vec<DistinguishedName>,
    reads_uid: bool,
}

impl ClientTrust {
    /// Trusts certificates that these CAs (PEM, any number of certificates) signed for client authentication. Without
    /// any, no client certificate is trusted.
    pub fn new(authorities: &[&str]) -> Result<Self, TlsError> {
        let roots = roots(authorities)?;
        if roots.is_empty() {
            return Ok(Self { verifier: None, front_proxies: None, hints: Vec::new(), reads_uid: true });
        }
        let hints = roots.subjects();
        Ok(Self { verifier: Some(verifier(roots)?), front_proxies: None, hints, reads_uid: true })
    }

    /// Trusts front proxies with certificates of these CAs (PEM).
    pub fn with_front_proxies(mut self, authorities: &str) -> Result<Self, TlsError> {
        let roots = roots(&[authorities])?;
        self.hints.extend(roots.subjects());
        Ok(Self { front_proxies: Some(verifier(roots)?), ..self })
    }

    /// Sets whether to read the uid attribute of a subject: the feature `AllowParsingUserUIDFromCertAuth`.
    #[must_use]
    pub fn reading_uid(self, reads_uid: bool) -> Self {
        Self { reads_uid, ..self }
    }

    /// Authenticates a certificate chain and a request's headers at a time: returns the user that a front proxy names,
    /// or the certificate's own. `Ok(None)` if there is no user, the reasons if verification fails.
    pub fn authenticate(
        &self,
        chain: &[CertificateDer<'_>],
        front_proxy: Option<&FrontProxy>,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Option<User>, Vec<String>> {
        match chain {
            [] => Ok(None),
            chain => self.peer(chain, now).authenticate(front_proxy, headers),
        }
    }

    /// Verifies a chain at a time.
    fn peer(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Peer {
        let front_proxy = self.front_proxies.as_deref().map(|verifier| {
            verify(verifier, chain, now)?;
            let name = chain.first().and_then(user_of).map(|proxy| proxy.name);
            name.ok_or_else(|| "the certificate has no common name".to_owned())
        });
        let end = self.verifier.as_ref().and_then(|_| chain.first()).and_then(end_of);
        Peer { user: self.user(chain, now).map(|user| user.map(Arc::new)), front_proxy, end }
    }

    /// Returns the user of a chain at a time. `Ok(None)` if it names no user, an error if verification fails.
    fn user(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Option<User>, String> {
        let (Some(leaf), Some(verifier)) = (chain.first(), &self.verifier) else { return Ok(None) };
        verify(&**verifier, chain, now)?;
        named_by(leaf, self.reads_uid)
    }
}

fn roots(authorities: &[&str]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for pem in authorities {
        for certificate in certificates(pem)? {
            roots.add(certificate)?;
        }
    }
    Ok(roots)
}

fn verifier(roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

fn verify(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<(), String> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err("there is no certificate".into());
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap_or(0)));
    let verified = verifier.verify_client_cert(leaf, intermediates, now);
    verified.map(drop).map_err(|why| format!("verifying certificate failed: {why}"))
}

/// The identity from a connection's client certificate.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The user of a certificate signed by the client CAs; an error if verification failed.
    pub(crate) user: Result<Option<Arc<User>>, String>,
    /// The common name in a certificate signed by the front proxies' CAs. `None` without such CAs.
    pub(crate) front_proxy: Option<Result<String, String>>,
    /// When the certificate expires, if it was verified against the client CAs.
    end: Option<Timestamp>,
}

impl Peer {
    /// Returns when a client's certificate expires; `None` for a front proxy's.
    pub(crate) fn client_end(&self) -> Option<Timestamp> {
        self.end.filter(|_| !matches!(self.front_proxy, Some(Ok(_))))
    }

    /// Returns the user that a front proxy names, or the certificate's own. Errors accumulate: a certificate that is
    /// rejected for a proxy may still identify a user.
    pub(crate) fn authenticate(
        &self,
        front_proxy: Option<&FrontProxy>,
        headers: &HeaderMap,
    ) -> Result<Option<User>, Vec<String>> {
        let mut errors = Vec::new();
        match self.proxied(front_proxy, headers) {
            Ok(Some(user)) => return Ok(Some(user)),
            Ok(None) => {}
            Err(why) => errors.push(why),
        }
        match &self.user {
            Ok(Some(user)) => return Ok(Some((**user).clone())),
            Ok(None) => {}
            Err(why) => errors.push(why.clone()),
        }
        if errors.is_empty() { Ok(None) } else { Err(errors) }
    }

    fn proxied(&self, front_proxy: Option<&FrontProxy>, headers: &HeaderMap) -> Result<Option<User>, String> {
        match (front_proxy, &self.front_proxy) {
            (Some(front_proxy), Some(Ok(common_name))) => front_proxy.user(common_name, headers),
            (Some(_), Some(Err(why))) => Err(why.clone()),
            _ => Ok(None),
        }
    }
}

impl Default for Peer {
    /// Returns the identity without a certificate.
    fn default() -> Self {
        Self { user: Ok(None), front_proxy: None, end: None }
    }
}

/// The client certificate of a connection.
pub(crate) struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    known: Mutex<Option<Known>>,
}

struct Known {
    by: Arc<ClientTrust>,
    /// When the next certificate of the chain expires.
    until: Timestamp,
    peer: Arc<Peer>,
}

impl ClientCertificate {
    /// Takes the chain from the handshake, if any.
    pub(crate) fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self { chain: chain.unwrap_or_default().to_vec(), known: Mutex::new(None) }
    }

    /// Returns the current identity.
    pub(crate) fn peer(&self, tls: &ServerTls, now: Timestamp) -> Arc<Peer> {
        if self.chain.is_empty() {
            return Arc::default();
        }
        let trust = tls.clients();
        let mut known = self.known.lock();
        if let Some(known) = &*known
            && Arc::ptr_eq(&known.by, &trust)
            && now <= known.until
        {
            return known.peer.clone();
        }
        let peer = Arc::new(trust.peer(&self.chain, now));
        if let Err(why) = &peer.user {
            tracing::debug!(why, "rejected a client certificate");
        }
        let until = next_end(&self.chain, now);
        *known = Some(Known { by: trust, until, peer: peer.clone() });
        peer
    }
}

/// Returns when the next certificate of a chain expires. Expired ones no longer change the verdict.
fn next_end(chain: &[CertificateDer<'_>], now: Timestamp) -> Timestamp {
    chain.iter().filter_map(end_of).filter(|end| now <= *end).min().unwrap_or(Timestamp::MAX)
}

fn end_of(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

/// Returns the user of a verified client certificate; `None` if it names no one, or its uid is malformed.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    named_by(certificate, true).ok().flatten()
}

/// Returns the user that a certificate names: its common name, with its organizations as groups.
fn named_by(certificate: &CertificateDer<'_>, reads_uid: bool) -> Result<Option<User>, String> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|why| format!("cannot be read: {why}"))?;
    let subject = parsed.subject();
    // If there are several, the last one is used, as in Go.
    let Some(name) = subject.iter_common_name().last() else { return Ok(None) };
    let name = subject_text(name).ok_or("the common name cannot be read")?;
    if name.is_empty() {
        return Ok(None);
    }
    let uid = if reads_uid { uid_of(subject)? } else { String::new() };
    let groups = organizations(subject).ok_or("an organization cannot be read")?;
    let mut user = User::authenticated(name, uid, groups);
    user.extra.insert(CREDENTIAL_ID.into(), vec![format!("X509SHA256={:x}", Sha256::digest(certificate))]);
    Ok(Some(user))
}

/// Returns the organizations in a subject; `None` if one cannot be decoded, since one that is skipped could not be
/// rejected.
pub(crate) fn organizations(subject: &X509Name<'_>) -> Option<Vec<String>> {
    subject.iter_organization().map(subject_text).collect()
}

/// Decodes a subject attribute, in all encodings that Go supports.
fn subject_text(part: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = part.attr_value();
    match value.tag() {
        Tag::T61String => Some(value.data.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (units, rest) = value.data.as_chunks::<2>();
            let units: Vec<u16> = units.iter().copied().map(u16::from_be_bytes).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
        _ => part.as_str().ok().map(Into::into),
    }
}

fn uid_of(subject: &X509Name<'_>) -> Result<String, String> {
    let oid = Oid::from(UID).map_err(|_| "the uid attribute has no identifier".to_owned())?;
    let mut uids = Vec::new();
    for attribute in subject.iter_by_oid(&oid) {
        uids.push(attribute.as_str().map_err(|_| "unable to parse UID into a string".to_owned())?);
    }
    match uids.as_slice() {
        [] => Ok(String::new()),
        [""] => Err("UID cannot be an empty string".into()),
        [uid] => Ok((*uid).into()),
        several => Err(format!("expected 1 UID, but found multiple: {several:?}")),
    }
}

/// Accepts any certificate, or none, in the handshake; only verifies that the client holds its key.
#[derive(Debug)]
pub struct AnyClient {
    signatures: Signatures,
    hints: Vec<DistinguishedName>,
}

impl AnyClient {
    /// Sends the CAs that `trust` accepts to clients as hints.
    pub fn with_ca_hints(provider: Arc<CryptoProvider>, trust: &ClientTrust) -> Self {
        Self { signatures: Signatures::new(provider), hints: trust.hints.clone() }
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls12(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls13(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Authority;
    use rcgen::{CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, KeyPair};

    fn now() -> Timestamp {
        "2025-03-04T05:06:07Z".parse().unwrap()
    }

    /// Builds a client certificate with these attributes and the extended key usages `usages`.
    fn signed(
        authority: &Authority,
        attributes: &[(DnType, &str)],
        usages: &[ExtendedKeyUsagePurpose],
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*value).into()));
        }
        params.extended_key_usages = usages.to_vec();
        params.not_before = rcgen::date_time_ymd(2025, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &authority.issuer().unwrap()).unwrap().der().clone()
    }

    fn uid() -> DnType {
        DnType::CustomDnType(UID.to_vec())
    }

    const CLIENT: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ClientAuth];

    #[test]
    fn a_certificate_names_its_user_groups_and_uid() {
        let authority = Authority::generate(now()).unwrap();
        let trust = ClientTrust::new(&[&authority.identity().certificate]).unwrap();
        let named = |attributes: &[(DnType, &str)]| {
            trust.user(&[signed(&authority, attributes, CLIENT)], now()).map_err(|why| why.to_string())
        };
        let jane = named(&[(DnType::OrganizationName, "dev"), (DnType::CommonName, "jane"), (uid(), "7")]);
        let jane = jane.unwrap().unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "7"));
        assert_eq!(jane.groups, ["dev", "system:authenticated"]);
        assert!(jane.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert_eq!(
            named(&[(DnType::OrganizationName, "dev")]),
            Ok(None),
            "a certificate without a name has no user"
        );
        assert_eq!(
            named(&[(DnType::CommonName, "jane"), (uid(), "")]),
            Err("UID cannot be an empty string".into())
        );
        let chain = [signed(&authority, &[(DnType::CommonName, "jane"), (uid(), "7")], CLIENT)];
        let without = trust.clone().reading_uid(false).user(&chain, now()).unwrap().unwrap();
        assert_eq!(without.uid, "", "the feature is off");
    }

    #[test]
    fn a_certificate_is_trusted_while_valid_for_its_purpose_from_its_authority() {
        let (authority, other) = (Authority::generate(now()).unwrap(), Authority::generate(now()).unwrap());
        let trust = ClientTrust::new(&[&authority.identity().certificate]).unwrap();
        let jane = &[(DnType::CommonName, "jane")];
        let chain = [signed(&authority, jane, CLIENT)];
        assert!(trust.user(&chain, now()).is_ok());
        for time in ["2024-12-31T00:00:00Z", "2026-01-02T00:00:00Z"] {
            assert!(trust.user(&chain, time.parse().unwrap()).is_err(), "{time}");
        }
        assert!(trust.user(&[signed(&other, jane, CLIENT)], now()).is_err());
        let server = [ExtendedKeyUsagePurpose::ServerAuth];
        assert!(trust.user(&[signed(&authority, jane, &server)], now()).is_err());
        assert!(trust.user(&[signed(&authority, jane, &[])], now()).is_ok(), "any purpose");
        let both = ClientTrust::new(&[&authority.identity().certificate, &other.identity().certificate]);
        assert!(both.unwrap().user(&[signed(&other, jane, CLIENT)], now()).is_ok());
        let none = ClientTrust::new(&[]).unwrap();
        assert_eq!(none.user(&chain, now()), Ok(None));
    }

    #[test]
    fn intermediate_certificates_are_verified_up_to_the_root() {
        let root = Authority::generate(now()).unwrap();
        let (between, cross) = root.renewed(now()).unwrap();
        let trust = ClientTrust::new(&[&root.identity().certificate]).unwrap();
        let leaf = signed(&between, &[(DnType::CommonName, "jane")], CLIENT);
        assert!(trust.user(std::slice::from_ref(&leaf), now()).is_err(), "the chain is incomplete");
        let chain = [leaf, certificates(&cross).unwrap().remove(0)];
        assert_eq!(trust.user(&chain, now()).unwrap().unwrap().name, "jane");
    }
}
