//! TLS settings: trusted certificates, and the client certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, InconsistentKeys, SignatureScheme};

use crate::signatures::Signatures;
use crate::trusted::TrustedCertificates;

/// How the server is verified.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The trusted CAs, as PEM. Defaults to the system's.
    pub authorities: Option<Vec<u8>>,
    /// The name that the certificate must be valid for, if it is not the URL's host.
    pub server_name: Option<String>,
    /// Whether to accept any certificate.
    pub is_insecure: bool,
    pub identity: Option<ClientIdentity>,
    /// Whether to offer only HTTP/1.1. Concurrent calls then use separate connections, and so reach several backends of
    /// one service.
    pub http1_only: bool,
}

/// A client certificate and its key, as PEM.
#[derive(Clone)]
pub struct ClientIdentity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientIdentity")
    }
}

/// An error while setting up TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("unable to load root certificates: {0}")]
    Authorities(String),
    #[error("cannot read the client certificate or its key: {0}")]
    Identity(String),
    #[error("cannot use the client certificate")]
    Rustls(#[from] rustls::Error),
}

impl TlsSettings {
    pub(crate) fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match self.is_insecure {
            true => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate {
                signatures: Signatures::new(provider.clone()),
            })),
            false => {
                let trusted = self.trusted(provider.clone())?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(trusted))
            }
        };
        let mut config = match &self.identity {
            Some(identity) => {
                let (chain, key) = identity.parse()?;
                let identity = certified(&provider, chain, key)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match self.http1_only {
            true => vec![b"http/1.1".to_vec()],
            false => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(config)
    }

    fn trusted(&self, provider: Arc<CryptoProvider>) -> Result<TrustedCertificates, TlsError> {
        let certificates: Vec<CertificateDer<'static>> = match &self.authorities {
            Some(authorities) => CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok).collect(),
            None => rustls_native_certs::load_native_certs().certs,
        };
        let trusted = TrustedCertificates::new(&certificates, provider);
        let trusted = trusted.map_err(|why| TlsError::Authorities(why.to_string()))?;
        match trusted.is_empty() && self.authorities.is_some() {
            true => Err(TlsError::Authorities("unable to parse bytes as PEM block".into())),
            false => Ok(trusted),
        }
    }
}

/// Returns a client certificate with its key. A certificate of X.509 version 1, as `openssl x509 -req` makes it, is for the
/// server to judge: rustls cannot compare it with the key.
fn certified(
    provider: &CryptoProvider,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    let certified = CertifiedKey::new(chain, provider.key_provider.load_private_key(key)?);
    match certified.keys_match() {
        Err(mismatch @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(mismatch),
        _ => Ok(certified),
    }
}

type Parsed = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl ClientIdentity {
    fn parse(&self) -> Result<Parsed, TlsError> {
        let bad = |why: String| TlsError::Identity(why);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|why| bad(why.to_string()))?;
        if chain.is_empty() {
            return Err(bad("there is no certificate in the PEM".into()));
        }
        let key = match PrivateKeyDer::from_pem_slice(&self.key) {
            Err(pem::Error::NoItemsFound) => return Err(bad("there is no private key in the PEM".into())),
            key => key.map_err(|why| bad(why.to_string()))?,
        };
        Ok((chain, key))
    }
}

/// A verifier that accepts any certificate, but its holder must still have the key.
#[derive(Debug)]
struct AcceptAnyCertificate {
    signatures: Signatures,
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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

    /// Made with `openssl x509 -req` without extensions, which makes it one of version 1.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBGjCBwQIUV5GBjL4qH+V98Pqlg1Yy6QLC1LcwCgYIKoZIzj0EAwIwDTELMAkG\n\
A1UEAwwCY2EwIBcNMjYxMTE5MDQxMjI0WhgPMjEyNjEwMjYwNDEyMjRaMBExDzAN\n\
BgNVBAMMBmNsaWVudDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAVpjY56gDSM\n\
cWBQPKtVBwmww1ZEXci1HdMCrvW7kcJBFCJSGkHfNQdf8qyxJLCgm6AFAzTyGMHq\n\
FY2AnE70+B8wCgYIKoZIzj0EAwIDSAAwRQIgK1YnGsJOMFa1++jWouwy+CuBTMpS\n\
jD6fSVu/qanoAtYCIQD3PY5UFuuOkI89Kng+HnZhlJ+H0Iz36ev7OXiUf7MHEA==\n\
-----END CERTIFICATE-----\n";
    const KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgPcvkWAZCb1THCH5Y\n\
RO0S2l7rKznLw+LxKy2XglrA+OGhRANCAAQFaY2OeoA0jHFgUDyrVQcJsMNWRF3I\n\
tR3TAq71u5HCQRQiUhpB3zUHX/KssSSwoJugBQM08hjB6hWNgJxO9Pgf\n\
-----END PRIVATE KEY-----\n";

    fn config(certificate: &str, key: &str) -> Result<ClientConfig, TlsError> {
        let identity = ClientIdentity { certificate: certificate.into(), key: key.into() };
        TlsSettings { is_insecure: true, identity: Some(identity), ..TlsSettings::default() }.config()
    }

    #[test]
    fn client_certificates_of_version_1_are_sent() {
        assert!(config(VERSION_1, KEY).is_ok());
    }

    #[test]
    fn a_key_of_another_certificate_is_an_error() {
        let other = rcgen::generate_simple_self_signed(["client".to_owned()]).expect("a certificate");
        let (certificate, key) = (other.cert.pem(), other.signing_key.serialize_pem());
        assert!(config(&certificate, &key).is_ok());
        assert!(matches!(config(&certificate, KEY), Err(TlsError::Rustls(_))));
    }
}
