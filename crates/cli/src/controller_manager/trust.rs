//! Whose client certificates are believed: those of users, and those of proxies that speak for users.

use std::collections::BTreeMap;
use std::str::Utf8Error;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use setpoint_apiserver::tls::{self, certificates};
use setpoint_cel::percent;

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

    /// Who a request is from, by its certificate; a proxy says so in headers. A proxy that names nobody is a
    /// user like any other.
    pub(crate) fn user(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<Option<UserInfo>, Utf8Error> {
        let verifies = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier.as_ref().is_some_and(|verifier| accepts(&**verifier, certificates))
        };
        let Some(own) = certificates.first() else { return Ok(None) };
        let is_proxy = verifies(&self.proxies) && self.headers.believe(own);
        match if is_proxy { self.headers.named(headers)? } else { None } {
            Some(user) => Ok(Some(user)),
            None if verifies(&self.users) => Ok(of_certificate(own)),
            None => Ok(None),
        }
    }
}

fn verifier(pem: &str) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

fn accepts(verifier: &dyn ClientCertVerifier, certificates: &[CertificateDer<'static>]) -> bool {
    let Some((own, between)) = certificates.split_first() else { return false };
    verifier.verify_client_cert(own, between, UnixTime::now()).is_ok()
}

fn of_certificate(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let user = tls::user_of(certificate)?;
    let uid = Some(user.uid).filter(|uid| !uid.is_empty());
    Some(UserInfo { username: Some(user.name), uid, groups: Some(user.groups), extra: Some(user.extra) })
}

impl Headers {
    /// Whether a proxy of this certificate is one of those that are believed.
    fn believe(&self, certificate: &CertificateDer<'_>) -> bool {
        let name = of_certificate(certificate).and_then(|proxy| proxy.username);
        self.allowed_names.is_empty() || name.is_some_and(|name| self.allowed_names.contains(&name))
    }

    /// For whom a proxy asks; nobody without a name. Fails on a value that is not UTF-8: leaving it out would
    /// make the request another user's.
    fn named(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, Utf8Error> {
        let first = |names: &[String]| {
            let values = names.iter().filter_map(|name| headers.get(name.as_str()));
            values.map(text).find(|value| !matches!(value, Ok(value) if value.is_empty())).transpose()
        };
        let Some(name) = first(&self.user)? else { return Ok(None) };
        let groups = self.group.iter().flat_map(|name| headers.get_all(name.as_str())).map(text);
        let mut groups: Vec<String> = groups.collect::<Result<_, _>>()?;
        groups.retain(|group| !group.is_empty());
        groups.push("system:authenticated".into());
        let (uid, extra) = (first(&self.uid)?, self.extra(headers)?);
        Ok(Some(UserInfo { username: Some(name), uid, groups: Some(groups), extra: Some(extra) }))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, Utf8Error> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in self.extra_prefix.iter().map(|prefix| prefix.to_lowercase()) {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    let key = percent::decode(key, false).unwrap_or(key.into());
                    extra.entry(key.into_owned()).or_default().push(text(value)?);
                }
            }
        }
        Ok(extra)
    }
}

fn text(value: &HeaderValue) -> Result<String, Utf8Error> {
    std::str::from_utf8(value.as_bytes()).map(str::to_owned)
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
    use super::tls::Authority;
    use super::*;

    fn der(pem: &str) -> Vec<CertificateDer<'static>> {
        certificates(pem).unwrap()
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
            let user = trust.user(&der(&certificate), headers).unwrap();
            assert_eq!(user.and_then(|user| user.username).as_deref(), expected);
        };
        check(&users, &HeaderMap::new(), Some("jane"));
        // Only a proxy may speak for others.
        check(&users, &remote, Some("jane"));
        check(&proxies, &remote, Some("eve"));
        check(&proxies, &HeaderMap::new(), None);
        check(&others, &remote, None);
        let proxy = der(&proxies.client_certificate("jane", &[], now).unwrap().certificate);
        assert!(trust(&["jane"]).user(&proxy, &remote).unwrap().is_some());
        assert!(trust(&["front"]).user(&proxy, &remote).unwrap().is_none());
    }

    #[test]
    fn a_header_that_cannot_be_read_makes_nobody_else_of_a_user() {
        let headers = Headers {
            user: vec!["x-remote-user".into()],
            group: vec!["x-remote-group".into()],
            extra_prefix: vec!["X-Remote-Extra-".into()],
            ..Headers::default()
        };
        let named = |pairs: &[(&'static str, &[u8])]| {
            let header = |(name, value): &(&'static str, &[u8])| {
                (http::HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
            };
            headers.named(&pairs.iter().map(header).collect())
        };
        let jane = ("x-remote-user", "Jürgen".as_bytes());
        let user =
            named(&[jane, ("x-remote-group", b"dev"), ("x-remote-extra-a%2fb", b"c")]).unwrap().unwrap();
        assert_eq!(user.username.as_deref(), Some("Jürgen"));
        assert_eq!(user.groups.unwrap(), ["dev", "system:authenticated"]);
        assert_eq!(user.extra.unwrap()["a/b"], ["c"]);
        assert_eq!(named(&[("x-remote-user", b"")]).unwrap(), None);
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-x"] {
            assert!(named(&[jane, (name, b"\xff")]).is_err() || name == "x-remote-user");
        }
        assert!(named(&[("x-remote-user", b"\xff")]).is_err());
    }
}
