//! Verifies servers whose certificate is trusted by itself: it is one of the configured CAs.
//!
//! That is how self-signed certificates are used, and most tools mark them as CAs. As in Go, such a certificate needs no
//! issuer; its name, its validity and its usage are still checked. Other certificates need a chain to a CA.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

/// A verifier that knows the CAs as they were given.
#[derive(Debug)]
pub(crate) struct TrustedCertificates {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) chains: Arc<WebPkiServerVerifier>,
}

/// Checks a certificate that needs no issuer.
fn check(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let malformed = |_| rustls::Error::from(CertificateError::BadEncoding);
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(malformed)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

impl ServerCertVerifier for TrustedCertificates {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|trusted| trusted == certificate) {
            return check(certificate, name, now).map(|()| ServerCertVerified::assertion());
        }
        self.chains.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(adjust: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 1);
        adjust(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_self_signed_certificate_is_trusted_by_itself() {
        let outcome = |adjust: fn(&mut CertificateParams), name: &str, year: u64| {
            let now =
                UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 86_400 * 30));
            let name = ServerName::try_from(name.to_owned()).unwrap();
            check(&certificate(adjust), &name, now).err().map(|why| format!("{why:?}"))
        };
        assert_eq!(outcome(|_| {}, "localhost", 2025), None);
        assert_eq!(outcome(|_| {}, "127.0.0.1", 2025), None);
        let for_servers = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        };
        assert_eq!(outcome(for_servers, "localhost", 2025), None);
        let for_clients = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        let refused = |outcome: Option<String>, part: &str| {
            assert!(outcome.as_ref().is_some_and(|why| why.contains(part)), "{outcome:?}");
        };
        refused(outcome(for_clients, "localhost", 2025), "InvalidPurpose");
        refused(outcome(|_| {}, "example.com", 2025), "NotValidForName");
        refused(outcome(|_| {}, "localhost", 2026), "Expired");
        refused(outcome(|_| {}, "localhost", 2024), "NotValidYet");
    }
}
