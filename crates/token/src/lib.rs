//! Tokens that say who somebody is, signed with the cluster's key.
//!
//! A key is read from PEM: RSA (as `RSA PRIVATE KEY` or `PRIVATE KEY`) signs with RS256, a P-256 key
//! (as `PRIVATE KEY`) with ES256. Its id is derived from its public half, as verifiers expect. What a token
//! says is the business of those who sign and read it.

mod retired;

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use retired::PublicKey;

/// Signs tokens, and knows its own again, and those of the keys before its own. Cheap to clone.
#[derive(Clone)]
pub struct TokenSigner {
    key: Arc<SigningKey>,
    key_id: Arc<str>,
    retired: Arc<[PublicKey]>,
}

enum SigningKey {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

/// A public key in the form of RFC 7517.
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

/// The algorithm identifiers of RSA, and of elliptic curve keys on P-256.
const RSA: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
const P256: &[u8] = b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";

/// The text is no key that tokens can be signed or verified with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable key: {0}")]
pub struct BadKey(String);

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    kid: &'a str,
}

#[derive(Deserialize)]
struct ReadHeader {
    alg: String,
    kid: Option<String>,
}

impl TokenSigner {
    /// A signer with the first private key in `pem`.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let (label, der) = decode_pem(pem)?;
        let rejected = |error: ring::error::KeyRejected| BadKey(error.to_string());
        let key = match label {
            "RSA PRIVATE KEY" => SigningKey::Rsa(RsaKeyPair::from_der(&der).map_err(rejected)?),
            "PRIVATE KEY" => SigningKey::from_pkcs8(&der)?,
            other => {
                return Err(BadKey(format!("{other:?} is none of \"RSA PRIVATE KEY\" and \"PRIVATE KEY\"")));
            }
        };
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key_info()));
        Ok(Self { key: Arc::new(key), key_id: key_id.into(), retired: Arc::default() })
    }

    /// Tokens of these public keys (PEM) count too: those of keys that this one replaced.
    pub fn with_retired(self, public_keys: &[String]) -> Result<Self, BadKey> {
        let retired = public_keys.iter().map(|pem| PublicKey::from_pem(pem)).collect::<Result<_, _>>()?;
        Ok(Self { retired, ..self })
    }

    /// The public half of the key, as PEM.
    pub fn public_pem(&self) -> String {
        retired::to_pem(&self.key.public_key_info())
    }

    /// The public halves of all keys whose tokens count, this one's first.
    pub fn public_jwks(&self) -> Vec<Jwk> {
        [self.public_jwk()].into_iter().chain(self.retired.iter().map(PublicKey::jwk)).collect()
    }

    /// A new private key (PEM) to sign with.
    pub fn generate_key() -> Result<String, BadKey> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let key = key.map_err(|error| BadKey(error.to_string()))?;
        Ok(retired::pem("PRIVATE KEY", key.as_ref()))
    }

    /// The public half of the key, as a JSON web key.
    pub fn public_jwk(&self) -> Jwk {
        let encode = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
        let common =
            Jwk { key_use: "sig", kid: self.key_id.to_string(), alg: self.key.algorithm(), ..Jwk::default() };
        match &*self.key {
            SigningKey::Rsa(key) => {
                let parts: PublicKeyComponents<Vec<u8>> = key.public().into();
                Jwk { kty: "RSA", n: encode(&parts.n), e: encode(&parts.e), ..common }
            }
            // An uncompressed point: a byte that says so, then both coordinates.
            SigningKey::Ecdsa(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                Jwk { kty: "EC", crv: Some("P-256"), x: encode(x), y: encode(y), ..common }
            }
        }
    }

    /// A token that says `claims`.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, SigningFailed> {
        let header = Header { alg: self.key.algorithm(), kid: &self.key_id };
        let mut token = format!("{}.{}", encode_json(&header)?, encode_json(claims)?);
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    /// What a token says, if this key signed it or one before it. A key id or algorithm of another key is refused.
    pub fn verify<C: DeserializeOwned>(&self, token: &str) -> Option<C> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: ReadHeader = decode_json(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let is_of = |algorithm: &str, key_id: &str| {
            header.alg == algorithm && header.kid.as_deref().is_none_or(|kid| kid == key_id)
        };
        let message = signed.as_bytes();
        let is_own = is_of(self.key.algorithm(), &self.key_id) && self.key.verify(message, &signature);
        let is_older =
            |key: &PublicKey| is_of(key.algorithm, &key.key_id) && key.verifies(message, &signature);
        (is_own || self.retired.iter().any(is_older)).then(|| decode_json(claims))?
    }
}

/// What a token says about itself, unverified.
pub fn unverified<C: DeserializeOwned>(token: &str) -> Option<C> {
    decode_json(token.split('.').nth(1)?)
}

fn decode_json<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// The machine had no randomness to give, or memory.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the token could not be signed")]
pub struct SigningFailed;

fn encode_json(value: &impl Serialize) -> Result<String, SigningFailed> {
    serde_json::to_vec(value).map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(|_| SigningFailed)
}

impl SigningKey {
    fn from_pkcs8(der: &[u8]) -> Result<Self, BadKey> {
        if let Ok(key) = RsaKeyPair::from_pkcs8(der) {
            return Ok(Self::Rsa(key));
        }
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())
            .map(Self::Ecdsa)
            .map_err(|error| BadKey(format!("neither RSA nor P-256: {error}")))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ecdsa(_) => "ES256",
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

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa(key) => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref())
                .verify(message, signature),
            Self::Ecdsa(key) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key().as_ref())
                .verify(message, signature),
        };
        verified.is_ok()
    }

    /// The public half as certificates carry it (`SubjectPublicKeyInfo`).
    fn public_key_info(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::Rsa(key) => (RSA, key.public_key().as_ref()),
            Self::Ecdsa(key) => (P256, key.public_key().as_ref()),
        };
        let bits = der(0x03, &[&[0], key].concat());
        der(0x30, &[algorithm, &bits].concat())
    }
}

/// A value in distinguished encoding, as keys and certificates are written: tag, length, content.
pub fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut encoded = vec![tag];
    match content.len() {
        short @ 0..128 => encoded.push(short as u8),
        _ => {
            encoded.push(0x80 | significant.len() as u8);
            encoded.extend(significant);
        }
    }
    encoded.extend(content);
    encoded
}

/// The label and the bytes of the first block that is a private key.
fn decode_pem(pem: &str) -> Result<(&str, Vec<u8>), BadKey> {
    let missing = || BadKey("there is no PEM block of a private key".into());
    decode_pem_block(pem, |label| label.ends_with("PRIVATE KEY"))?.ok_or_else(missing)
}

/// The label and the bytes of the first block with a label that is wanted.
fn decode_pem_block(pem: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Option<(&str, Vec<u8>)>, BadKey> {
    for block in pem.split("-----BEGIN ").skip(1) {
        let Some((label, rest)) = block.split_once("-----") else { continue };
        let Some((body, _)) = rest.split_once("-----END ") else { continue };
        if is_wanted(label) {
            let base64: String = body.chars().filter(|char| !char.is_whitespace()).collect();
            let bytes = STANDARD.decode(base64).map_err(|error| BadKey(error.to_string()))?;
            return Ok(Some((label, bytes)));
        }
    }
    Ok(None)
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
    fn the_public_half_is_told_without_the_private_one() {
        let pem = TokenSigner::generate_key().expect("a key can be made");
        let jwk = TokenSigner::from_pem(&pem).expect("just made").public_jwk();
        let lengths =
            [jwk.x, jwk.y].map(|part| URL_SAFE_NO_PAD.decode(part.unwrap_or_default()).map(|b| b.len()));
        assert_eq!((jwk.kty, jwk.crv, lengths), ("EC", Some("P-256"), [Ok(32), Ok(32)]));
    }
}
