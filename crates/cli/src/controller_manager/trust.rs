//! Whose client certificates are believed: those of users, and those of proxies that speak for users.

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
}

impl Trust {
    /// The authorities of users and of proxies, as PEM.
    pub(crate) fn new(users: Option<&str>, proxies: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self { users: users.map(verifier).transpose()?, proxies: proxies.map(verifier).transpose()? })
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
        if verifies(&self.proxies) {
            return named_in_headers(headers);
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
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let organizations = parsed.subject().iter_organization();
    let mut groups: Vec<String> =
        organizations.filter_map(|group| group.as_str().ok().map(str::to_owned)).collect();
    groups.push("system:authenticated".into());
    Some(UserInfo { username: Some(name), groups: Some(groups), ..UserInfo::default() })
}

fn named_in_headers(headers: &HeaderMap) -> Option<UserInfo> {
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    let username = headers.get("x-remote-user").and_then(text)?;
    let mut groups: Vec<String> = headers.get_all("x-remote-group").iter().filter_map(text).collect();
    groups.push("system:authenticated".into());
    Some(UserInfo { username: Some(username), groups: Some(groups), ..UserInfo::default() })
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
        let trust = Trust::new(Some(&pem(&users)), Some(&pem(&proxies))).unwrap();
        let remote = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-remote-user"),
            http::HeaderValue::from_static("eve"),
        )]);
        let check = |authority: &Authority, headers: &HeaderMap, expected: Option<&str>| {
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
    }
}
