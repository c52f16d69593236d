//! Public keys of signers that were replaced: their tokens still count.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest, Sha256};

use super::{BadKey, Jwk, P256, RSA, decode_pem_block};

/// Verifies tokens that it cannot sign.
pub(crate) struct PublicKey {
    pub(crate) algorithm: &'static str,
    pub(crate) key_id: String,
    verification: &'static dyn VerificationAlgorithm,
    key: Vec<u8>,
}

impl PublicKey {
    /// The first public key in `pem` (as `PUBLIC KEY`): RSA, or on P-256.
    pub(crate) fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let missing = || BadKey("there is no PEM block of a public key".into());
        let (_, info) = decode_pem_block(pem, |label| label == "PUBLIC KEY")?.ok_or_else(missing)?;
        let unknown = || BadKey("neither RSA nor P-256".into());
        let (key_info, _) = read(0x30, &info).ok_or_else(unknown)?;
        let known: [(_, _, &dyn VerificationAlgorithm); 2] =
            [(RSA, "RS256", &RSA_PKCS1_2048_8192_SHA256), (P256, "ES256", &ECDSA_P256_SHA256_FIXED)];
        for (identifier, algorithm, verification) in known {
            let Some(bits) = key_info.strip_prefix(identifier).and_then(|rest| read(0x03, rest)) else {
                continue;
            };
            let key = bits.0.strip_prefix(&[0]).ok_or_else(unknown)?.to_vec();
            let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(&info));
            return Ok(Self { algorithm, key_id, verification, key });
        }
        Err(unknown())
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(self.verification, &self.key).verify(message, signature).is_ok()
    }

    pub(crate) fn jwk(&self) -> Jwk {
        let encode = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
        let common = Jwk { key_use: "sig", kid: self.key_id.clone(), alg: self.algorithm, ..Jwk::default() };
        match self.algorithm {
            "RS256" => {
                let parts = read(0x30, &self.key).and_then(|(numbers, _)| {
                    let (n, rest) = read(0x02, numbers)?;
                    Some((n, read(0x02, rest)?.0))
                });
                // A leading zero says that the number is not negative.
                let unsigned = |number: &[u8]| encode(number.strip_prefix(&[0]).unwrap_or(number));
                let (n, e) = parts.unwrap_or_default();
                Jwk { kty: "RSA", n: unsigned(n), e: unsigned(e), ..common }
            }
            _ => {
                let (x, y) = self.key.get(1..).unwrap_or_default().split_at(self.key.len() / 2);
                Jwk { kty: "EC", crv: Some("P-256"), x: encode(x), y: encode(y), ..common }
            }
        }
    }
}

/// The content of a value with this tag in distinguished encoding, and what follows it.
fn read(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..128 => (usize::from(short), rest),
        long => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let value = length
                .iter()
                .try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add((*byte).into()));
            (value?, rest)
        }
    };
    rest.split_at_checked(length).filter(|_| *found == tag)
}

/// A public key in PEM.
pub(crate) fn to_pem(info: &[u8]) -> String {
    pem("PUBLIC KEY", info)
}

/// A PEM block.
pub(crate) fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenSigner, der};
    use serde_json::{Value, json};

    #[test]
    fn tokens_of_a_key_that_was_replaced_still_count() {
        let signer = || TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap();
        let (old, stranger) = (signer(), signer());
        let new = signer().with_retired(&[old.public_pem()]).unwrap();
        let claims = json!({"sub": "robot"});
        for (by, expected) in [(&old, true), (&new, true), (&stranger, false)] {
            let token = by.sign(&claims).unwrap();
            assert_eq!(new.verify::<Value>(&token).is_some(), expected);
        }
        assert_eq!(old.verify::<Value>(&new.sign(&claims).unwrap()), None);
        let jwks = new.public_jwks();
        assert_eq!(jwks, [new.public_jwk(), old.public_jwk()]);
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        for text in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert!(PublicKey::from_pem(text).is_err(), "{text}");
        }
        assert_eq!(read(0x30, &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 1]), None, "longer than there is");
        assert_eq!(read(0x30, &der(0x30, &[7; 300])), Some((&[7; 300][..], &[][..])));
    }
}
