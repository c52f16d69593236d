//! Public keys from PEM files and JSON Web Key Sets, for verifying signatures.
//!
//! A key verifies only the algorithms of its type, whatever a token claims. P-521 keys are not supported, because the
//! cryptography library that rustls uses does not have that curve.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::pem::{blocks, der, expect};
use crate::{BadKey, Jwk, TokenSigner};

/// A public key that verifies signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// A signature algorithm of RFC 7518.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Es512,
    Ps256,
    Ps384,
    Ps512,
}

impl Algorithm {
    pub const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A key of a JSON Web Key Set (RFC 7517).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ReadJwk {
    kty: String,
    kid: String,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

#[derive(Deserialize)]
struct ReadSet {
    keys: Vec<serde_json::Value>,
}

/// A key of a set, and its ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetKey {
    pub id: String,
    pub key: PublicKey,
}

/// The maximum number of keys kept from a set. Issuers have a handful, and each costs a verification.
const SET_KEYS: usize = 100;

/// Parses a JSON Web Key Set. Skips unsupported keys. Returns an error if it is not a key set.
pub fn key_set(json: &[u8]) -> Result<Vec<SetKey>, serde_json::Error> {
    let set: ReadSet = serde_json::from_slice(json)?;
    let read = |value: serde_json::Value| {
        let jwk: ReadJwk = serde_json::from_value(value).ok()?;
        Some(SetKey { key: PublicKey::from_jwk(&jwk)?, id: jwk.kid })
    };
    Ok(set.keys.into_iter().filter_map(read).take(SET_KEYS).collect())
}

const RSA_OID: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
const EC_OID: &[u8] = b"\x2a\x86\x48\xce\x3d\x02\x01";
const P256_OID: &[u8] = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
const P384_OID: &[u8] = b"\x2b\x81\x04\x00\x22";

impl PublicKey {
    /// Parses all keys of a PEM file: public keys, certificates, and the public part of private keys.
    pub fn all_from_pem(pem: &str) -> Result<Vec<Self>, BadKey> {
        let mut keys = Vec::new();
        for (label, bytes) in blocks(pem)? {
            let bad = || BadKey(format!("the {label:?} is neither RSA nor P-256 nor P-384"));
            match label {
                "PUBLIC KEY" => keys.push(Self::from_info(&bytes).ok_or_else(bad)?),
                "RSA PUBLIC KEY" => keys.push(Self::from_pkcs1(&bytes).ok_or_else(bad)?),
                "CERTIFICATE" => keys.push(Self::from_certificate(&bytes).ok_or_else(bad)?),
                label if label.ends_with("PRIVATE KEY") => {
                    keys.push(TokenSigner::from_der(label, &bytes)?.public_key());
                }
                // Curve parameters that precede a key.
                _ => {}
            }
        }
        match keys.is_empty() {
            true => Err(BadKey("the file holds no valid RSA or ECDSA public keys".into())),
            false => Ok(keys),
        }
    }

    pub(crate) fn rsa(n: Vec<u8>, e: Vec<u8>) -> Self {
        Self { kind: Kind::Rsa { n, e } }
    }

    pub(crate) fn point(point: &[u8]) -> Option<Self> {
        let kind = match point.len() {
            65 => Kind::P256(point.to_vec()),
            97 => Kind::P384(point.to_vec()),
            _ => return None,
        };
        (point[0] == 4).then_some(Self { kind })
    }

    fn from_jwk(jwk: &ReadJwk) -> Option<Self> {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        match (jwk.kty.as_str(), jwk.crv.as_str()) {
            ("RSA", _) => Some(Self::rsa(decode(&jwk.n)?, decode(&jwk.e)?)),
            ("EC", "P-256" | "P-384") => {
                let size = if jwk.crv == "P-256" { 32 } else { 48 };
                let (x, y) = (decode(&jwk.x)?, decode(&jwk.y)?);
                (x.len() == size && y.len() == size).then(|| Self::point(&[&[4], &x[..], &y[..]].concat()))?
            }
            _ => None,
        }
    }

    /// Parses a `SubjectPublicKeyInfo`.
    fn from_info(bytes: &[u8]) -> Option<Self> {
        let (info, _) = expect(bytes, 0x30)?;
        let (algorithm, rest) = expect(info, 0x30)?;
        let (oid, parameters) = expect(algorithm, 0x06)?;
        let (bits, _) = expect(rest, 0x03)?;
        let key = bits.strip_prefix(&[0])?;
        if oid == RSA_OID {
            return Self::from_pkcs1(key);
        }
        let (curve, _) = expect(parameters, 0x06)?;
        let is_known = oid == EC_OID && (curve == P256_OID || curve == P384_OID);
        is_known.then(|| Self::point(key))?
    }

    fn from_pkcs1(bytes: &[u8]) -> Option<Self> {
        let (sequence, _) = expect(bytes, 0x30)?;
        let (n, rest) = expect(sequence, 0x02)?;
        let (e, _) = expect(rest, 0x02)?;
        let unsigned =
            |number: &[u8]| number[number.iter().take_while(|byte| **byte == 0).count()..].to_vec();
        Some(Self::rsa(unsigned(n), unsigned(e)))
    }

    fn from_certificate(bytes: &[u8]) -> Option<Self> {
        let (certificate, _) = expect(bytes, 0x30)?;
        let (mut fields, _) = expect(certificate, 0x30)?;
        // Skip the version (optional), serial number, signature, issuer, validity and subject. The key follows.
        if let Some((_, rest)) = expect(fields, 0xa0) {
            fields = rest;
        }
        for _ in 0..5 {
            let (_, _, rest) = crate::pem::read(fields)?;
            fields = rest;
        }
        Self::from_info(fields)
    }

    /// Returns the algorithm that the private key signs service account tokens with.
    pub fn algorithm(&self) -> &'static str {
        match self.kind {
            Kind::Rsa { .. } => "RS256",
            Kind::P256(_) => "ES256",
            Kind::P384(_) => "ES384",
        }
    }

    /// Returns whether the signature of this message is valid with this algorithm.
    pub fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match &self.kind {
            Kind::Rsa { n, e } => {
                let Some(parameters) = rsa_parameters(algorithm) else { return false };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            Kind::P256(point) if algorithm == Algorithm::Es256 => {
                verifies(&signature::ECDSA_P256_SHA256_FIXED, point, message, signature)
            }
            Kind::P384(point) if algorithm == Algorithm::Es384 => {
                verifies(&signature::ECDSA_P384_SHA384_FIXED, point, message, signature)
            }
            _ => false,
        }
    }

    /// Encodes the key as a `SubjectPublicKeyInfo`.
    fn info(&self) -> Vec<u8> {
        let oid = |bytes: &[u8]| der(0x06, bytes);
        let (algorithm, key) = match &self.kind {
            Kind::Rsa { n, e } => {
                let parts = [integer(n), integer(e)].concat();
                ([oid(RSA_OID), der(0x05, &[])].concat(), der(0x30, &parts))
            }
            Kind::P256(point) => ([oid(EC_OID), oid(P256_OID)].concat(), point.clone()),
            Kind::P384(point) => ([oid(EC_OID), oid(P384_OID)].concat(), point.clone()),
        };
        let bits = der(0x03, &[&[0], &key[..]].concat());
        der(0x30, &[der(0x30, &algorithm), bits].concat())
    }

    /// Encodes the key as PEM.
    pub fn to_pem(&self) -> String {
        crate::pem::block("PUBLIC KEY", &self.info())
    }

    /// Returns the key ID, which is derived from the key as verifiers expect.
    pub fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.info()))
    }

    /// Converts the key to a JSON Web Key.
    pub fn jwk(&self) -> Jwk {
        let encode = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
        let common = Jwk { key_use: "sig", kid: self.id(), alg: self.algorithm(), ..Jwk::default() };
        match &self.kind {
            Kind::Rsa { n, e } => Jwk { kty: "RSA", n: encode(n), e: encode(e), ..common },
            Kind::P256(point) | Kind::P384(point) => {
                // A byte for the uncompressed form, then both coordinates.
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                let curve = if matches!(self.kind, Kind::P256(_)) { "P-256" } else { "P-384" };
                Jwk { kty: "EC", crv: Some(curve), x: encode(x), y: encode(y), ..common }
            }
        }
    }
}

fn verifies(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static signature::RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// Encodes a non-negative integer.
fn integer(bytes: &[u8]) -> Vec<u8> {
    match bytes.first() {
        Some(0..0x80) => der(0x02, bytes),
        _ => der(0x02, &[&[0], bytes].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_from_every_form() {
        let pem = TokenSigner::generate_key().unwrap();
        let signer = TokenSigner::from_pem(&pem).unwrap();
        let from_private = PublicKey::all_from_pem(&pem).unwrap().remove(0);
        assert_eq!(from_private, signer.public_key());
        let info = from_private.info();
        assert_eq!(PublicKey::from_info(&info), Some(from_private.clone()));
        let set = serde_json::json!({"keys": [from_private.jwk(), {"kty": "oct", "k": "a"}, 5]});
        let set = key_set(set.to_string().as_bytes()).unwrap();
        assert_eq!(set, [SetKey { id: signer.public_key().id(), key: from_private }]);
    }

    #[test]
    fn an_rsa_key_keeps_its_numbers() {
        let key = PublicKey::rsa(vec![0x80; 256], vec![1, 0, 1]);
        assert_eq!(PublicKey::from_info(&key.info()), Some(key));
    }

    #[test]
    fn nonsense_is_no_key() {
        for bytes in [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x30\x01"] {
            assert_eq!(PublicKey::from_info(bytes), None);
            assert_eq!(PublicKey::from_pkcs1(bytes), None);
            assert_eq!(PublicKey::from_certificate(bytes), None);
        }
        assert!(PublicKey::all_from_pem("").is_err());
        assert!(key_set(b"[]").is_err());
        assert_eq!(key_set(br#"{"keys":[{"kty":"EC","crv":"P-256","x":"","y":""}]}"#).unwrap(), []);
    }
}
