//! A certificate authority.
//!
//! Supports RSA, P-256, P-384 and Ed25519 keys in all common PEM formats. Certificates have the layout of Kubernetes'
//! signers: subject, names and key of the request, the requested usages, no other extensions of the request, and never
//! CA rights.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;

use super::der;
use super::request::Request;
use super::usages::Usages;

/// Certificates are backdated by this much to allow for clock skew.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Certificates shorter than this keep their full lifetime: backdating does not move their end.
const SHORT: SignedDuration = SignedDuration::from_hours(8);

/// A CA certificate and its key. Cheap to clone.
#[derive(Clone)]
pub struct CertificateAuthority(Arc<Inner>);

struct Inner {
    key: Key,
    /// The DER-encoded subject of the CA certificate.
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
}

enum Key {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// The CA certificate or key is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable certificate authority: {0}")]
pub struct BadAuthority(String);

impl CertificateAuthority {
    /// Reads the first certificate and the first private key of two PEM texts.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, BadAuthority> {
        let blocks = blocks(certificate)?;
        let block = blocks.iter().find(|block| block.label == "CERTIFICATE");
        let block = block.ok_or_else(|| BadAuthority("there is no PEM block of a certificate".into()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&block.contents)
            .map_err(|error| BadAuthority(format!("cannot read the certificate: {error}")))?;
        let key = Key::from_pem(key)?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public() {
            return Err(BadAuthority("the private key is not that of the certificate".into()));
        }
        let key_id = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp())
            .map_err(|error| BadAuthority(error.to_string()))?;
        Ok(Self(Arc::new(Inner { key, subject: parsed.subject().as_raw().to_vec(), key_id, not_after })))
    }

    /// Issues a PEM certificate for the request, valid for `lifetime` from `now` but not beyond the CA's own expiry.
    /// The caller draws `serial`.
    pub(super) fn issue(
        &self,
        request: &Request,
        usages: &Usages,
        lifetime: Duration,
        now: Timestamp,
        serial: u128,
    ) -> Result<String, String> {
        if !request.is_signed_by_its_key() {
            return Err("unable to verify certificate request signature".into());
        }
        let (from, to) = self.validity(lifetime, now)?;
        let signature = self.0.key.algorithm();
        let certificate = der::sequence(&[
            &der::tagged(0, &der::value(der::INTEGER, &[2])),
            &der::positive(&serial.to_be_bytes()),
            &signature,
            &self.0.subject,
            &der::sequence(&[&der::time(from), &der::time(to)]),
            &request.subject,
            &request.public_key,
            &der::tagged(3, &self.extensions(request, usages)),
        ]);
        let signed = self.0.key.sign(&certificate)?;
        Ok(pem(&der::sequence(&[&certificate, &signature, &der::bits(&signed)])))
    }

    fn validity(&self, lifetime: Duration, now: Timestamp) -> Result<(Timestamp, Timestamp), String> {
        let end = self.0.not_after;
        let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
        let lasts = if lifetime < SHORT { lifetime } else { lifetime - BACKDATE };
        let (from, to) = (now.checked_sub(BACKDATE), now.checked_add(lasts));
        let from = from.map_err(|error| error.to_string())?;
        if from >= end {
            return Err(format!("the signer has expired: NotAfter={end}"));
        }
        if now >= end {
            return Err(format!("refusing to sign a certificate that expired in the past: NotAfter={end}"));
        }
        Ok((from, to.unwrap_or(end).min(end)))
    }

    fn extensions(&self, request: &Request, usages: &Usages) -> Vec<u8> {
        const KEY_USAGE: u8 = 15;
        const ALTERNATIVE_NAMES: u8 = 17;
        const BASIC_CONSTRAINTS: u8 = 19;
        const AUTHORITY_KEY_ID: u8 = 35;
        const EXTENDED_KEY_USAGE: u8 = 37;
        let mut all = Vec::new();
        if usages.key != 0 {
            all.extend(der::extension(KEY_USAGE, true, &der::flags(usages.key)));
        }
        if !usages.extended.is_empty() {
            let ids: Vec<u8> = usages.extended.iter().flat_map(|id| der::oid(id)).collect();
            all.extend(der::extension(EXTENDED_KEY_USAGE, false, &der::sequence(&[&ids])));
        }
        // An empty sequence: not a CA.
        all.extend(der::extension(BASIC_CONSTRAINTS, true, &der::sequence(&[])));
        if let Some(id) = &self.0.key_id {
            all.extend(der::extension(AUTHORITY_KEY_ID, false, &der::sequence(&[&der::value(0x80, id)])));
        }
        let names = names(request);
        if !names.is_empty() {
            // Without a subject, the alternative names are the only identity and must be critical.
            let critical = request.subject == der::sequence(&[]);
            all.extend(der::extension(ALTERNATIVE_NAMES, critical, &der::sequence(&[&names])));
        }
        der::sequence(&[&all])
    }
}

fn names(request: &Request) -> Vec<u8> {
    let text = |tag: u8| move |name: &String| der::value(tag, name.as_bytes());
    let dns = request.dns_names.iter().flat_map(text(0x82));
    let emails = request.emails.iter().flat_map(text(0x81));
    let addresses = request.addresses.iter().flat_map(|address| match address {
        std::net::IpAddr::V4(v4) => der::value(0x87, &v4.octets()),
        std::net::IpAddr::V6(v6) => der::value(0x87, &v6.octets()),
    });
    let uris = request.uris.iter().flat_map(text(0x86));
    dns.chain(emails).chain(addresses).chain(uris).collect()
}

impl Key {
    fn from_pem(pem: &str) -> Result<Self, BadAuthority> {
        let blocks = blocks(pem)?;
        let block = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY"));
        let block = block.ok_or_else(|| BadAuthority("there is no PEM block of a private key".into()))?;
        let key = match block.label.as_str() {
            "RSA PRIVATE KEY" => {
                RsaKeyPair::from_der(&block.contents).ok().map(|key| Self::Rsa(Box::new(key)))
            }
            "EC PRIVATE KEY" => Self::from_sec1(&block.contents),
            _ => Self::from_pkcs8(&block.contents),
        };
        let expected = "the private key is none of RSA (2048 bits or more), P-256, P-384 and Ed25519";
        key.ok_or_else(|| BadAuthority(expected.into()))
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let p256 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &random).map(Self::P256);
        let p384 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_ASN1_SIGNING, der, &random).map(Self::P384);
        let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Self::Ed25519);
        let rsa = RsaKeyPair::from_pkcs8(der).map(|key| Self::Rsa(Box::new(key)));
        rsa.or_else(|_| p256()).or_else(|_| p384()).or_else(|_| ed25519()).ok()
    }

    /// Wraps a SEC1 elliptic curve key in PKCS #8.
    fn from_sec1(key: &[u8]) -> Option<Self> {
        let wrapped = |curve: &[u8]| {
            let algorithm = der::sequence(&[&der::oid(EC_PUBLIC_KEY), &der::oid(curve)]);
            der::sequence(&[&der::value(der::INTEGER, &[0]), &algorithm, &der::octets(key)])
        };
        Self::from_pkcs8(&wrapped(P256)).or_else(|| Self::from_pkcs8(&wrapped(P384)))
    }

    fn public(&self) -> &[u8] {
        match self {
            Self::Rsa(key) => key.public_key().as_ref(),
            Self::P256(key) | Self::P384(key) => key.public_key().as_ref(),
            Self::Ed25519(key) => key.public_key().as_ref(),
        }
    }

    /// Returns the DER-encoded signature algorithm identifier.
    fn algorithm(&self) -> Vec<u8> {
        match self {
            Self::Rsa(_) => der::sequence(&[&der::oid(SHA256_WITH_RSA), &der::value(0x05, &[])]),
            Self::P256(_) => der::sequence(&[&der::oid(ECDSA_WITH_SHA256)]),
            Self::P384(_) => der::sequence(&[&der::oid(ECDSA_WITH_SHA384)]),
            Self::Ed25519(_) => der::sequence(&[&der::oid(ED25519)]),
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let random = SystemRandom::new();
        let failed = |_| "failed to sign certificate".to_owned();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Self::P256(key) | Self::P384(key) => {
                key.sign(&random, message).map(|signature| signature.as_ref().to_vec()).map_err(failed)
            }
            Self::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
        }
    }
}

/// DER-encoded object identifiers.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
const SHA256_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const ECDSA_WITH_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

fn blocks(pem: &str) -> Result<Vec<Pem>, BadAuthority> {
    Pem::iter_from_buffer(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| BadAuthority(format!("cannot read the PEM: {error}")))
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority").field("not_after", &self.0.not_after).finish_non_exhaustive()
    }
}
