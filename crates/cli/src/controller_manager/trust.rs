//! Whose client certificates are believed: those of users, and those of proxies that speak for users.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

/// Verifiers by whom they are for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    users: Option<Arc<dyn ClientCertVerifier>>,
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    headers: Headers,
}

/// How proxies say for whom they ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    /// Proxies that are believed; none: all.
    pub(crate) allowed_names: Vec<String>,
    pub(crate) user: Vec<String>,
    pub(crate) uid: Vec<String>,
    pub(crate) group: Vec<String>,
    pub(crate) extra_prefix: Vec<String>,
}

impl Trust {
    /// The authorities of users and of proxies, as PEM.
    pub(crate) fn new(users: Option<&str>, proxies: Option<&str>, headers: Headers) -> anyhow::Result<Self> {
        let (users, proxies) = (users.map(verifier).transpose()?, proxies.map(verifier).transpose()?);
        Ok(Self { users, proxies, headers })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_none() && self.proxies.is_none()
    }

    /// Who a request is from, by its certificate; a proxy says so in headers.
    pub(crate) fn user(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Option<UserInfo> {
        let verifies = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier.as_ref().is_some_and(|verifier| accepts(&**verifier, certificates))
        };
        if verifies(&self.proxies) && self.headers.believe(certificates.first()?) {
            return self.headers.named(headers);
        }
        if verifies(&self.users) { of_certificate(certificates.first()?) } else { None }
    }
}

fn verifier(pem: &str) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

fn accepts(verifier: &dyn ClientCertVerifier, certificates: &[CertificateDer<'static>]) -> bool {
    let Some((own, between)) = certificates.split_first() else { return false };
    verifier.verify_client_cert(own, between, UnixTime::now()).is_ok()
}

fn of_certificate(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    // Of several names the last one counts, as in Go.
    let name = parsed.subject().iter_common_name().last()?.as_str().ok()?.to_owned();
    let organizations = parsed.subject().iter_organization();
    let mut groups: Vec<String> =
        organizations.filter_map(|group| group.as_str().ok().map(str::to_owned)).collect();
    groups.push("system:authenticated".into());
    Some(UserInfo { username: Some(name), groups: Some(groups), ..UserInfo::default() })
}

impl Headers {
    /// Whether a proxy of this certificate is one of those that are believed.
    fn believe(&self, certificate: &CertificateDer<'_>) -> bool {
        let name = of_certificate(certificate).and_then(|proxy| proxy.username);
        self.allowed_names.is_empty() || name.is_some_and(|name| self.allowed_names.contains(&name))
    }

    /// For whom a proxy asks.
    fn named(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
        let first =
            |names: &[String]| names.iter().find_map(|name| headers.get(name.as_str()).and_then(text));
        let all = self.group.iter().flat_map(|name| headers.get_all(name.as_str()));
        let mut groups: Vec<String> = all.filter_map(text).collect();
        groups.push("system:authenticated".into());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let prefixes = self.extra_prefix.iter().map(|prefix| prefix.to_lowercase());
            let mut keys = prefixes.filter_map(|prefix| name.as_str().strip_prefix(prefix.as_str()));
            if let (Some(key), Some(value)) = (keys.next(), text(value)) {
                extra.entry(key.to_owned()).or_default().push(value);
            }
        }
        let (username, uid) = (Some(first(&self.user)?), first(&self.uid));
        Some(UserInfo { username, uid, groups: Some(groups), extra: Some(extra) })
    }
}

/// In the handshake any of them will do; none is needed.
impl ClientCertVerifier for Trust {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let all = [&self.users, &self.proxies];
        let mut verdicts =
            all.into_iter().flatten().map(|one| one.verify_client_cert(certificate, between, now));
        let unknown = Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        verdicts.find(Result::is_ok).unwrap_or(unknown)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use setpoint_apiserver::tls::Authority;

    use super::*;

    fn der(pem: &str) -> Vec<CertificateDer<'static>> {
        rustls_pemfile::certs(&mut pem.as_bytes()).map(|one| one.unwrap()).collect()
    }

    #[test]
    fn a_certificate_is_believed_if_its_authority_is() {
        let now = setpoint::Clock::system().now();
        let (users, proxies, others) = (
            Authority::generate(now).unwrap(),
            Authority::generate(now).unwrap(),
            Authority::generate(now).unwrap(),
        );
        let pem = |authority: &Authority| authority.identity().certificate.clone();
        let headers = Headers { user: vec!["x-remote-user".into()], ..Headers::default() };
        let trust = |allowed: &[&str]| {
            let allowed_names = allowed.iter().map(|name| (*name).to_owned()).collect();
            let headers = Headers { allowed_names, ..headers.clone() };
            Trust::new(Some(&pem(&users)), Some(&pem(&proxies)), headers).unwrap()
        };
        let remote = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-remote-user"),
            http::HeaderValue::from_static("eve"),
        )]);
        let check = |authority: &Authority, headers: &HeaderMap, expected: Option<&str>| {
            let trust = trust(&[]);
            let certificate = authority.client_certificate("jane", &["dev"], now).unwrap().certificate;
            let user = trust.user(&der(&certificate), headers);
            assert_eq!(user.and_then(|user| user.username).as_deref(), expected);
        };
        check(&users, &HeaderMap::new(), Some("jane"));
        // Only a proxy may speak for others.
        check(&users, &remote, Some("jane"));
        check(&proxies, &remote, Some("eve"));
        check(&proxies, &HeaderMap::new(), None);
        check(&others, &remote, None);
        let proxy = der(&proxies.client_certificate("jane", &[], now).unwrap().certificate);
        assert!(trust(&["jane"]).user(&proxy, &remote).is_some());
        assert!(trust(&["front"]).user(&proxy, &remote).is_none());
    }
}
