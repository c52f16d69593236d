//! NaCl's secretbox, XSalsa20 and Poly1305: `nonce(24) tag(16) ciphertext`. The place of a value is not
//! authenticated.

use crypto_secretbox::aead::generic_array::GenericArray;
use crypto_secretbox::{AeadInPlace, KeyInit, XSalsa20Poly1305};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::{Context, KeyTag, Opened, Purpose, TransformError, Transformer, random};

const NONCE: usize = 24;
const TAG: usize = 16;

/// Secretbox with a key from the configuration.
pub(crate) struct SecretboxTransformer {
    cipher: XSalsa20Poly1305,
    tag: KeyTag,
}

impl SecretboxTransformer {
    pub(crate) fn new(key: &[u8], tag: KeyTag) -> Result<Self, TransformError> {
        let cipher = XSalsa20Poly1305::new_from_slice(key).map_err(|_| {
            TransformError::new(format!("expected key size 32 for secretbox provider, got {}", key.len()))
        })?;
        Ok(Self { cipher, tag })
    }

    fn seal(&self, data: &[u8], nonce: [u8; NONCE], out: &mut Vec<u8>) -> Result<(), TransformError> {
        out.extend_from_slice(&nonce);
        let tag_at = out.len();
        out.resize(tag_at + TAG, 0);
        out.extend_from_slice(data);
        let (head, buffer) = out.split_at_mut(tag_at + TAG);
        let sealed = self.cipher.encrypt_in_place_detached(GenericArray::from_slice(&nonce), b"", buffer);
        let tag = sealed.map_err(|_| TransformError::new("the value is too large for secretbox"))?;
        head[tag_at..].copy_from_slice(&tag);
        Ok(())
    }

    fn open(&self, data: &[u8]) -> Result<Vec<u8>, TransformError> {
        let parts = data.split_at_checked(NONCE).and_then(|(nonce, sealed)| {
            let (tag, sealed) = sealed.split_at_checked(TAG)?;
            Some((nonce, tag, sealed))
        });
        let Some((nonce, tag, sealed)) = parts else {
            return Err(TransformError::new("the stored data was shorter than the required size"));
        };
        let mut buffer = sealed.to_vec();
        let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
        // v1.34's words for a value that another key has encrypted.
        let failed = |_| TransformError::new("output array was not large enough for encryption");
        self.cipher.decrypt_in_place_detached(nonce, b"", &mut buffer, tag).map_err(failed)?;
        Ok(buffer)
    }
}

impl Transformer for SecretboxTransformer {
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        _: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>> {
        let opened = self.open(data);
        let opened = opened.map(|data| Opened { data, stale: false, key: Some(self.tag.clone()) });
        async move { opened }.boxed()
    }

    fn encrypt(
        &self,
        data: &[u8],
        _: &Context<'_>,
        _: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError> {
        self.seal(data, random::array()?, out)?;
        Ok(Some(self.tag.clone()))
    }

    fn is_stale(&self, key: Option<&KeyTag>) -> bool {
        key != Some(&self.tag)
    }
}
