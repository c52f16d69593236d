//! What the providers have in common: a cipher, and a transformer that uses it with a key from the configuration.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::{Context, KeyTag, Opened, Purpose, TransformError, Transformer};

/// Seals values with a key that it holds.
pub(crate) trait Cipher: Send + Sync + 'static {
    /// Appends the sealed form of `data` to `out`. `authenticated` is what [`Cipher::open`] must be given again, of
    /// ciphers that can tell.
    fn seal(&self, data: &[u8], authenticated: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError>;

    fn open(&self, data: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, TransformError>;
}

/// Transforms with a key from the configuration. A value's place is authenticated if the cipher can.
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
