//! AES-GCM with a random nonce: `nonce(12) ciphertext tag(16)`.
//!
//! With random nonces, a key is exhausted after 2^32 writes (NIST SP 800-38D), so keys have to be rotated.

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::{AeadInPlace, Aes128Gcm, Aes256Gcm, AesGcm, KeyInit};

use crate::cipher::Cipher;
use crate::{TransformError, random};

const NONCE: usize = 12;
const TAG: usize = 16;

/// The cipher for a key of 16, 24 or 32 bytes.
pub(crate) enum Gcm {
    Aes128(Box<Aes128Gcm>),
    Aes192(Box<AesGcm<aes::Aes192, U12>>),
    Aes256(Box<Aes256Gcm>),
}

impl Gcm {
    pub(crate) fn new(key: &[u8]) -> Result<Self, TransformError> {
        let invalid = |_| TransformError::new(format!("crypto/aes: invalid key size {}", key.len()));
        match key.len() {
            16 => Aes128Gcm::new_from_slice(key).map(Box::new).map(Self::Aes128).map_err(invalid),
            24 => AesGcm::new_from_slice(key).map(Box::new).map(Self::Aes192).map_err(invalid),
            _ => Aes256Gcm::new_from_slice(key).map(Box::new).map(Self::Aes256).map_err(invalid),
        }
    }
}

impl Cipher for Gcm {
    fn seal(&self, data: &[u8], authenticated: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError> {
        let nonce = random::array::<NONCE>()?;
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(data);
        let (nonce, buffer) = (GenericArray::from_slice(&nonce), &mut out[start..]);
        let tag = match self {
            Self::Aes128(cipher) => cipher.encrypt_in_place_detached(nonce, authenticated, buffer),
            Self::Aes192(cipher) => cipher.encrypt_in_place_detached(nonce, authenticated, buffer),
            Self::Aes256(cipher) => cipher.encrypt_in_place_detached(nonce, authenticated, buffer),
        };
        // Fails only for data beyond 64 GiB.
        out.extend_from_slice(
            &tag.map_err(|_| TransformError::new("crypto/cipher: message too large for GCM"))?,
        );
        Ok(())
    }

    fn open(&self, data: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, TransformError> {
        let Some((nonce, sealed)) = data.split_at_checked(NONCE) else {
            return Err(TransformError::new("the stored data was shorter than the required size"));
        };
        let failed = || TransformError::new("cipher: message authentication failed");
        let length = sealed.len().checked_sub(TAG).ok_or_else(failed)?;
        let (sealed, tag) = sealed.split_at(length);
        let mut buffer = sealed.to_vec();
        let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
        let opened = match self {
            Self::Aes128(cipher) => cipher.decrypt_in_place_detached(nonce, authenticated, &mut buffer, tag),
            Self::Aes192(cipher) => cipher.decrypt_in_place_detached(nonce, authenticated, &mut buffer, tag),
            Self::Aes256(cipher) => cipher.decrypt_in_place_detached(nonce, authenticated, &mut buffer, tag),
        };
        opened.map_err(|_| failed())?;
        Ok(buffer)
    }
}
