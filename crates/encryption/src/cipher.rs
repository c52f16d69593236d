//! The common part of the providers: a cipher, and a transformer that uses it with a key from the configuration.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::{Context, KeyTag, Opened, Purpose, TransformError, Transformer};

/// Encrypts values with a key it holds.
pub(crate) trait Cipher: Send + Sync + 'static {
    /// Appends the encrypted form of `data` to `out`. Authenticated ciphers require the same `authenticated` data in
    /// [`Cipher::open`].
    fn seal(&self, data: &[u8], authenticated: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError>;

    fn open(&self, data: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, TransformError>;
}

/// A transformer with a key from the configuration. Authenticates a value's location if the cipher supports it.
pub(crate) struct Keyed<C> {
    pub(crate) cipher: C,
    pub(crate) tag: KeyTag,
}

impl<C: Cipher> Transformer for Keyed<C> {
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        context: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>> {
        let opened = self.cipher.open(data, context.path.as_bytes());
        let opened = opened.map(|data| Opened { data, stale: false, key: Some(self.tag.clone()) });
        std::future::ready(opened).boxed()
    }

    fn encrypt(
        &self,
        data: &[u8],
        context: &Context<'_>,
        _: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError> {
        self.cipher.seal(data, context.path.as_bytes(), out)?;
        Ok(Some(self.tag.clone()))
    }

    fn is_stale(&self, key: Option<&KeyTag>) -> bool {
        key != Some(&self.tag)
    }
}
