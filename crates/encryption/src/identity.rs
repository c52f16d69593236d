//! The identity provider: no encryption, and no ciphertext accepted as plain text.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::{Context, ENCRYPTED_PREFIX, KeyTag, Opened, Purpose, TransformError, Transformer};

/// The transformer that stores values as they are.
pub struct Identity;

impl Identity {
    /// Checks that a stored value is plain text. This is all that decryption does here, without waiting.
    pub fn check(data: &[u8]) -> Result<(), TransformError> {
        match data.starts_with(ENCRYPTED_PREFIX) {
            true => Err(TransformError::new("identity transformer tried to read encrypted data")),
            false => Ok(()),
        }
    }
}

impl Transformer for Identity {
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        _: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>> {
        let opened = Self::check(data).map(|()| Opened { data: data.to_vec(), stale: false, key: None });
        async move { opened }.boxed()
    }

    fn encrypt(
        &self,
        data: &[u8],
        _: &Context<'_>,
        _: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError> {
        out.extend_from_slice(data);
        Ok(None)
    }

    fn is_stale(&self, key: Option<&KeyTag>) -> bool {
        key.is_some()
    }

    fn is_identity(&self) -> bool {
        true
    }
}
