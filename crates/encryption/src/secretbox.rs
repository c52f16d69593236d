//! NaCl's secretbox, XSalsa20 and Poly1305: `nonce(24) tag(16) ciphertext`. The location of a value is not
//! authenticated.

use crypto_secretbox::aead::generic_array::GenericArray;
use crypto_secretbox::{AeadInPlace, KeyInit, XSalsa20Poly1305};

use crate::cipher::Cipher;
use crate::{TransformError, random};

const NONCE: usize = 24;
const TAG: usize = 16;

/// Secretbox with a 32-byte key.
pub(crate) struct Secretbox(XSalsa20Poly1305);

impl Secretbox {
    pub(crate) fn new(key: &[u8]) -> Result<Self, TransformError> {
        let cipher = XSalsa20Poly1305::new_from_slice(key).map_err(|_| {
            TransformError::new(format!("expected key size 32 for secretbox provider, got {}", key.len()))
        })?;
        Ok(Self(cipher))
    }
}

impl Cipher for Secretbox {
    fn seal(&self, data: &[u8], _: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError> {
        let nonce = random::array::<NONCE>()?;
        out.extend_from_slice(&nonce);
        let tag_at = out.len();
        out.resize(tag_at + TAG, 0);
        out.extend_from_slice(data);
        let (head, buffer) = out.split_at_mut(tag_at + TAG);
        let sealed = self.0.encrypt_in_place_detached(GenericArray::from_slice(&nonce), b"", buffer);
        let tag = sealed.map_err(|_| TransformError::new("the value is too large for secretbox"))?;
        head[tag_at..].copy_from_slice(&tag);
        Ok(())
    }

    fn open(&self, data: &[u8], _: &[u8]) -> Result<Vec<u8>, TransformError> {
        let parts = data.split_at_checked(NONCE).and_then(|(nonce, sealed)| {
            let (tag, sealed) = sealed.split_at_checked(TAG)?;
            Some((nonce, tag, sealed))
        });
        let Some((nonce, tag, sealed)) = parts else {
            return Err(TransformError::new("the stored data was shorter than the required size"));
        };
        let mut buffer = sealed.to_vec();
        let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
        // v1.34's message for a value encrypted with another key.
        let failed = |_| TransformError::new("output array was not large enough for encryption");
        self.0.decrypt_in_place_detached(nonce, b"", &mut buffer, tag).map_err(failed)?;
        Ok(buffer)
    }
}
