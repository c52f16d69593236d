//! Verifies servers as Go does: in the same order, with the same messages.
//!
//! A certificate that is one of the configured CAs is trusted by itself. That is how self-signed certificates are used,
//! and most tools mark them as CAs. It needs no issuer; its name, its validity and its usage are still checked. Any other
//! certificate needs a chain to a CA, which webpki verifies.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::VerifierBuilderError;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

use crate::chain::{Root, Search, UNKNOWN_AUTHORITY};
use crate::signatures::Signatures;
use crate::x509::{INCOMPATIBLE_USAGE, MALFORMED, check_host, check_usage, check_validity, parse};

/// A verifier that knows the CAs as they were given.
#[derive(Debug)]
pub(crate) struct TrustedCertificates {
    roots: Vec<Root>,
    /// `None` if there are no CAs.
    chains: Option<Arc<WebPkiServerVerifier>>,
    signatures: Signatures,
}

/// Why a certificate was rejected, in Go's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Rejected(pub(crate) String);

impl TrustedCertificates {
    pub(crate) fn new(
        certificates: &[CertificateDer<'static>],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let mut anchors = RootCertStore::empty();
        let (added, _) = anchors.add_parsable_certificates(certificates.iter().cloned());
        let signatures = Signatures::new(provider.clone());
        let chains = || WebPkiServerVerifier::builder_with_provider(Arc::new(anchors), provider).build();
        let chains = (added > 0).then(chains).transpose()?;
        Ok(Self { roots: certificates.iter().filter_map(|der| root(der)).collect(), chains, signatures })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_none()
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), String> {
        let leaf = parse(certificate).ok_or(MALFORMED)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        check_validity(&leaf, seconds)?;
        check_host(certificate, &leaf, host)?;
        if self.roots.iter().any(|root| root.der == certificate.as_ref()) {
            return check_usage(&leaf);
        }
        let sent = intermediates.iter().map(|certificate| certificate.as_ref());
        Search::new(&leaf, &self.roots, sent, seconds).extend(&[&leaf])?;
        let chains = self.chains.as_ref().ok_or(UNKNOWN_AUTHORITY)?;
        let verified = chains.verify_server_cert(certificate, intermediates, host, &[], now);
        verified.map(drop).map_err(|why| match leaf.is_ca() {
            true => "x509: a CA certificate that is not itself trusted cannot identify a server".into(),
            false => worded(&why),
        })
    }
}

fn root(der: &CertificateDer<'_>) -> Option<Root> {
    let subject = parse(der)?.subject().as_raw().to_vec();
    Some(Root { subject, der: der.to_vec() })
}

/// Describes webpki's verdict on a certificate whose name, validity and issuers are as they should be.
fn worded(why: &rustls::Error) -> String {
    use CertificateError as Bad;
    let rustls::Error::InvalidCertificate(why) = why else { return format!("x509: {why}") };
    match why {
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => INCOMPATIBLE_USAGE.into(),
        Bad::UnhandledCriticalExtension => "x509: unhandled critical extension".into(),
        Bad::BadEncoding => MALFORMED.into(),
        Bad::UnknownIssuer | Bad::BadSignature => UNKNOWN_AUTHORITY.into(),
        Bad::Other(OtherError(why)) => format!("x509: {why}"),
        why => format!("x509: {why}"),
    }
}

impl From<Rejected> for rustls::Error {
    fn from(rejected: Rejected) -> Self {
        CertificateError::Other(OtherError(Arc::new(rejected))).into()
    }
}

impl ServerCertVerifier for TrustedCertificates {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verify(certificate, intermediates, host, now);
        verified.map(|()| ServerCertVerified::assertion()).map_err(|why| Rejected(why).into())
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
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
        KeyPair, KeyUsagePurpose, date_time_ymd,
    };

    use super::*;

    /// A CA, and what to sign with it.
    struct Authority(Certificate, Issuer<'static, KeyPair>);

    impl Authority {
        fn new(name: &str, adjust: impl FnOnce(&mut CertificateParams)) -> Self {
            let mut params = params(name, &[]);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            adjust(&mut params);
            let key = KeyPair::generate().unwrap();
            Self(params.self_signed(&key).unwrap(), Issuer::new(params, key))
        }

        fn sign(&self, params: &CertificateParams) -> CertificateDer<'static> {
            params.signed_by(&KeyPair::generate().unwrap(), &self.1).unwrap().der().clone()
        }
    }

    /// A certificate valid in 2025.
    fn params(name: &str, alternatives: &[&str]) -> CertificateParams {
        let alternatives: Vec<_> = alternatives.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 1);
        params
    }

    fn self_signed(params: &CertificateParams) -> CertificateDer<'static> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    /// Verifies the first certificate of a chain in February of a year.
    fn verdict(
        roots: &[CertificateDer<'static>],
        chain: &[CertificateDer<'static>],
        host: &str,
        year: u64,
    ) -> Result<(), String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = TrustedCertificates::new(roots, provider).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 86_400 * 30));
        let host = ServerName::try_from(host.to_owned()).unwrap();
        let verdict = verifier.verify(&chain[0], &chain[1..], &host, now);
        verdict.map_err(|why| why.strip_prefix("x509: ").unwrap_or_else(|| panic!("{why}")).to_owned())
    }

    fn refused(why: &str) -> Result<(), String> {
        Err(why.to_owned())
    }

    #[test]
    fn a_self_signed_certificate_is_trusted_by_itself() {
        let mut own = params("hook", &["localhost", "127.0.0.1"]);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let verdict = |params: &CertificateParams, host: &str, year: u64| {
            let own = [self_signed(params)];
            super::tests::verdict(&own, &own, host, year)
        };
        assert_eq!(verdict(&own, "localhost", 2025), Ok(()));
        assert_eq!(verdict(&own, "127.0.0.1", 2025), Ok(()));
        assert_eq!(
            verdict(&params("hook", &["localhost"]), "localhost", 2025),
            Ok(()),
            "without the mark of a CA"
        );
        own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        assert_eq!(verdict(&own, "localhost", 2025), Ok(()));
        let other = "certificate is valid for localhost, not example.com";
        assert_eq!(verdict(&own, "example.com", 2025), refused(other));
        let expired = "certificate has expired or is not yet valid: current time 2026-01-31T00:00:00Z is after \
                       2026-01-01T00:00:00Z";
        assert_eq!(verdict(&own, "localhost", 2026), refused(expired));
        let early = "certificate has expired or is not yet valid: current time 2024-01-31T12:00:00Z is before \
                     2025-01-01T00:00:00Z";
        assert_eq!(verdict(&own, "localhost", 2024), refused(early));
        own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let usage = "certificate specifies an incompatible key usage";
        assert_eq!(verdict(&own, "localhost", 2025), refused(usage));
    }

    #[test]
    fn a_certificate_for_another_host_is_described_as_go_does() {
        let ca = Authority::new("ca", |_| {});
        let many: Vec<_> = (0..100).map(|number| format!("10.1.0.{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        for (common_name, alternatives, host, expected) in [
            ("x", &["10.0.0.1"][..], "127.0.0.1", "certificate is valid for 10.0.0.1, not 127.0.0.1"),
            ("x", &["10.0.0.1", "fd00::1"], "::1", "certificate is valid for 10.0.0.1, fd00::1, not ::1"),
            (
                "x",
                &["example.com"],
                "127.0.0.1",
                "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
            ),
            (
                "localhost",
                &[],
                "127.0.0.1",
                "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
            ),
            (
                "x",
                &["example.com", "a.example.com"],
                "localhost",
                "certificate is valid for example.com, a.example.com, not localhost",
            ),
            (
                "LOCALHOST",
                &[],
                "localhost",
                "certificate relies on legacy Common Name field, use SANs instead",
            ),
            (
                "*.example.com",
                &[],
                "a.example.com",
                "certificate relies on legacy Common Name field, use SANs instead",
            ),
            (
                "127.0.0.1",
                &[],
                "127.0.0.1",
                "certificate relies on legacy Common Name field, use SANs instead",
            ),
            ("x", &[], "localhost", "certificate is not valid for any names, but wanted to match localhost"),
            (
                "localhost",
                &["10.0.0.1"],
                "localhost",
                "certificate is not valid for any names, but wanted to match localhost",
            ),
            ("x", &many, "127.0.0.1", "certificate is valid for 100 IP SANs, but none matched 127.0.0.1"),
        ] {
            let leaf = ca.sign(&params(common_name, alternatives));
            assert_eq!(verdict(&[ca.0.der().clone()], &[leaf], host, 2025), refused(expected));
        }
    }

    #[test]
    fn a_certificate_without_a_trusted_issuer_is_described_as_go_does() {
        let plain = |_: &mut CertificateParams| {};
        let (ca, other, namesake) =
            (Authority::new("ca", plain), Authority::new("other", plain), Authority::new("ca", plain));
        let leaf = [ca.sign(&params("x", &["localhost"]))];
        let outcome = |roots: &[&Authority], chain: &[CertificateDer<'static>], year: u64| {
            let roots: Vec<_> = roots.iter().map(|root| root.0.der().clone()).collect();
            verdict(&roots, chain, "localhost", year)
        };
        let unknown = "certificate signed by unknown authority";
        assert_eq!(outcome(&[&ca], &leaf, 2025), Ok(()));
        assert_eq!(outcome(&[&namesake, &ca], &leaf, 2025), Ok(()));
        assert_eq!(outcome(&[&other], &leaf, 2025), refused(unknown));
        assert_eq!(outcome(&[], &leaf, 2025), refused(unknown), "a system without CAs");
        let hint = "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" \
                    while trying to verify candidate authority certificate \"ca\")";
        assert_eq!(outcome(&[&namesake], &leaf, 2025), refused(hint), "a CA that was generated again");
        let mut marked = params("x", &["localhost"]);
        marked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        assert_eq!(outcome(&[&other], &[self_signed(&marked)], 2025), refused(unknown), "a self-signed CA");
        assert!(outcome(&[&ca], &[ca.sign(&marked)], 2025).unwrap_err().starts_with("a CA certificate"));
    }

    #[test]
    fn every_certificate_of_a_chain_is_checked() {
        let long = |params: &mut CertificateParams| params.not_after = date_time_ymd(2030, 1, 1);
        let (root, old_root) = (Authority::new("root", long), Authority::new("old", |_| {}));
        let mut leaf = params("x", &["localhost"]);
        long(&mut leaf);
        let outcome = |root: &Authority, chain: &[CertificateDer<'static>], year: u64| {
            verdict(&[root.0.der().clone()], chain, "localhost", year)
        };
        let expired = "certificate has expired or is not yet valid: current time 2026-01-31T00:00:00Z is after \
                       2026-01-01T00:00:00Z";
        assert_eq!(outcome(&root, &[root.sign(&leaf)], 2026), Ok(()));
        assert_eq!(outcome(&old_root, &[old_root.sign(&leaf)], 2026), refused(expired), "an expired CA");
        let intermediate = |params: &CertificateParams| {
            let key = KeyPair::generate().unwrap();
            let signed = params.signed_by(&key, &root.1).unwrap().der().clone();
            (signed, Issuer::new(params.clone(), key))
        };
        let through = |params: &CertificateParams, year: u64| {
            let (signed, issuer) = intermediate(params);
            let leaf = leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
            outcome(&root, &[leaf, signed], year)
        };
        let mut between = params("between", &[]);
        between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        assert_eq!(through(&between, 2025), Ok(()));
        assert_eq!(through(&between, 2026), refused(expired), "an expired intermediate");
        between.is_ca = IsCa::ExplicitNoCa;
        let hint = "certificate signed by unknown authority (possibly because of \"x509: invalid signature: parent \
                    certificate cannot sign this kind of certificate\" while trying to verify candidate authority \
                    certificate \"between\")";
        assert_eq!(through(&between, 2025), refused(hint));
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let usage = "certificate specifies an incompatible key usage";
        assert_eq!(outcome(&root, &[root.sign(&leaf)], 2025), refused(usage));
    }
}
