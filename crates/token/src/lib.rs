//! Signed service account tokens (JWTs), and bootstrap tokens.
//!
//! Keys are read from PEM. An RSA key (`RSA PRIVATE KEY` or `PRIVATE KEY`) signs with RS256, a P-256 key (`EC PRIVATE
//! KEY` or `PRIVATE KEY`) with ES256, and a P-384 key with ES384. The key ID is derived from the public key, as
//! verifiers expect. This crate does not interpret the claims.

mod bootstrap;
mod parts;
mod pem;
mod public;

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use bootstrap::{BOOTSTRAP_TYPE, BootstrapSecret, BootstrapToken, Left, is_same};
pub use parts::Parts;
pub use pem::der;
pub use public::{Algorithm, PublicKey, SetKey, key_set};

/// A signer of tokens, which also verifies tokens it signed. Cheap to clone.
#[derive(Clone)]
pub struct TokenSigner {
    key: Arc<SigningKey>,
    public: Arc<PublicKey>,
    key_id: Arc<str>,
}

enum SigningKey {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

/// A public key as a JSON Web Key (RFC 7517).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Jwk {
    #[serde(rename = "use")]
    pub key_use: &'static str,
    pub kty: &'static str,
    pub kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crv: Option<&'static str>,
    pub alg: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e: Option<String>,
}

/// The PEM does not contain a key that can sign tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable private key: {0}")]
pub struct BadKey(String);

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    kid: &'a str,
}

impl TokenSigner {
    /// Creates a signer with the first private key in `pem`.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let blocks = pem::blocks(pem)?;
        let private = blocks.iter().find(|(label, _)| label.ends_with("PRIVATE KEY"));
        let (label, der) = private.ok_or_else(|| BadKey("there is no PEM block of a private key".into()))?;
        Self::from_der(label, der)
    }

    fn from_der(label: &str, der: &[u8]) -> Result<Self, BadKey> {
        let rejected = |error: ring::error::KeyRejected| BadKey(error.to_string());
        let key = match label {
            "RSA PRIVATE KEY" => SigningKey::Rsa(RsaKeyPair::from_der(der).map_err(rejected)?),
            "EC PRIVATE KEY" => SigningKey::from_sec1(der)?,
            "PRIVATE KEY" => SigningKey::from_pkcs8(der)?,
            other => {
                let known = "\"RSA PRIVATE KEY\", \"EC PRIVATE KEY\" and \"PRIVATE KEY\"";
                return Err(BadKey(format!("{other:?} is none of {known}")));
            }
        };
        let public = key.public_key()?;
        Ok(Self { key_id: public.id().into(), public: Arc::new(public), key: Arc::new(key) })
    }

    /// Generates a private key for signing, as PEM.
    pub fn generate_key() -> Result<String, BadKey> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let key = key.map_err(|error| BadKey(error.to_string()))?;
        Ok(pem::block("PRIVATE KEY", key.as_ref()))
    }

    /// Returns the public key.
    pub fn public_key(&self) -> PublicKey {
        (*self.public).clone()
    }

    /// Returns the public key as a JSON Web Key.
    pub fn public_jwk(&self) -> Jwk {
        self.public.jwk()
    }

    /// Returns the public key as PEM.
    pub fn public_pem(&self) -> String {
        self.public.to_pem()
    }

    /// Signs a token with these claims.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, SigningFailed> {
        let header = Header { alg: self.public.algorithm(), kid: &self.key_id };
        let mut token = format!("{}.{}", encode_json(&header)?, encode_json(claims)?);
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    /// Verifies a token and returns its claims, if this key signed it. A token with another key ID or algorithm is
    /// rejected.
    pub fn verify<C: DeserializeOwned>(&self, token: &str) -> Option<C> {
        verify(std::slice::from_ref(&*self.public), token)
    }
}

/// Verifies a token and returns its claims, if one of these keys signed it. A token with another key ID or algorithm is
/// rejected.
pub fn verify<C: DeserializeOwned>(keys: &[PublicKey], token: &str) -> Option<C> {
    let parts = Parts::of(token)?;
    let algorithm = Algorithm::parse(&parts.algorithm)?;
    let is_meant = |key: &&PublicKey| {
        key.algorithm() == parts.algorithm && (parts.key_id.is_empty() || key.id() == parts.key_id)
    };
    let signed =
        keys.iter().filter(is_meant).any(|key| key.verify(algorithm, parts.signed, &parts.signature));
    signed.then(|| serde_json::from_slice(&parts.claims).ok())?
}

/// Returns a token's claims without verifying it.
pub fn unverified<C: DeserializeOwned>(token: &str) -> Option<C> {
    decode_json(token.split('.').nth(1)?)
}

fn decode_json<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Signing failed: the system could not provide randomness or memory.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the token could not be signed")]
pub struct SigningFailed;

fn encode_json(value: &impl Serialize) -> Result<String, SigningFailed> {
    serde_json::to_vec(value).map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(|_| SigningFailed)
}

/// The algorithm identifiers of elliptic curve keys, which include the curve.
const P256: &[u8] = b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
const P384: &[u8] = b"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22";

impl SigningKey {
    fn from_pkcs8(der: &[u8]) -> Result<Self, BadKey> {
        if let Ok(key) = RsaKeyPair::from_pkcs8(der) {
            return Ok(Self::Rsa(key));
        }
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random);
        let key = p256.or_else(|_| EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, der, &random));
        key.map(Self::Ecdsa).map_err(|error| BadKey(format!("neither RSA nor P-256 nor P-384: {error}")))
    }

    /// Parses the older SEC 1 format that `openssl ecparam` writes: the same key without the PKCS#8 wrapper.
    fn from_sec1(key: &[u8]) -> Result<Self, BadKey> {
        let wrapped = |algorithm: &[u8]| {
            let version = [0x02, 0x01, 0x00];
            der(0x30, &[&version, algorithm, &der(0x04, &without_parameters(key))].concat())
        };
        Self::from_pkcs8(&wrapped(P256)).or_else(|_| Self::from_pkcs8(&wrapped(P384)))
    }

    fn public_key(&self) -> Result<PublicKey, BadKey> {
        match self {
            Self::Rsa(key) => {
                let parts: PublicKeyComponents<Vec<u8>> = key.public().into();
                Ok(PublicKey::rsa(parts.n, parts.e))
            }
            Self::Ecdsa(key) => PublicKey::point(key.public_key().as_ref())
                .ok_or_else(|| BadKey("the key's point is of neither P-256 nor P-384".into())),
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SigningFailed> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(|_| SigningFailed)?;
                Ok(signature)
            }
            Self::Ecdsa(key) => key
                .sign(&random, message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| SigningFailed),
        }
    }
}

/// Removes the curve parameters from an elliptic curve key. The wrapper already names the curve.
fn without_parameters(key: &[u8]) -> Vec<u8> {
    let parts = || {
        let (mut fields, _) = pem::expect(key, 0x30)?;
        let mut kept = Vec::new();
        while !fields.is_empty() {
            let (tag, content, rest) = pem::read(fields)?;
            if tag != 0xa0 {
                kept.extend(der(tag, content));
            }
            fields = rest;
        }
        Some(der(0x30, &kept))
    };
    parts().unwrap_or_default()
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn signer() -> TokenSigner {
        TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap()
    }

    #[test]
    fn a_signer_knows_its_own_tokens_and_no_others() {
        let (signer, other) = (signer(), signer());
        let claims = json!({"sub": "robot"});
        let token = signer.sign(&claims).unwrap();
        assert_eq!(signer.verify::<Value>(&token), Some(claims.clone()));
        assert_eq!(other.verify::<Value>(&token), None);
        assert_eq!(unverified::<Value>(&token), Some(claims));
        let (_, rest) = token.split_once('.').unwrap();
        let unsigned = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
        assert_eq!(signer.verify::<Value>(&unsigned), None, "the algorithm is not for the token to choose");
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(r#"{"sub":"root"}"#);
        assert_eq!(signer.verify::<Value>(&format!("{}.{forged}.{}", parts[0], parts[2])), None);
        for nonsense in ["", ".", "..", "a.b.c", "tok"] {
            assert_eq!(signer.verify::<Value>(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_public_key_is_derived_from_the_private_one() {
        let pem = TokenSigner::generate_key().expect("a key can be made");
        let jwk = TokenSigner::from_pem(&pem).expect("just made").public_jwk();
        let lengths =
            [jwk.x, jwk.y].map(|part| URL_SAFE_NO_PAD.decode(part.unwrap_or_default()).map(|b| b.len()));
        assert_eq!((jwk.kty, jwk.crv, lengths), ("EC", Some("P-256"), [Ok(32), Ok(32)]));
    }
}
