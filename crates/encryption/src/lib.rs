//! Encryption at rest, as Kubernetes v1.34 does it: the EncryptionConfiguration file, its providers, and the bytes
//! that they write.
//!
//! A [`Transformer`] turns an encoded object into what a store keeps, and back. Every storage engine goes through
//! this trait, so what one of them wrote another one can read. This crate knows neither a store nor the API.
//!
//! What always holds:
//! - a value is bound to the place it is stored at: where the provider can authenticate, it cannot be moved to
//!   another key ([`Context::path`]);
//! - writing never waits: a KMS plugin is asked beforehand for a data encryption key, only reading may ask it;
//! - no byte sequence, however bent, makes reading panic;
//! - no error and no log line contains a key.

mod aes_cbc;
mod aes_gcm;
mod cipher;
pub mod config;
mod extended_nonce;
mod identity;
mod kms;
mod load;
mod location;
mod metrics;
mod prefix;
mod random;
mod secretbox;
#[cfg(any(test, feature = "test-util"))]
pub mod test_plugin;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;

pub use crate::identity::Identity;
pub use crate::kms::grpc::Code;
pub use crate::load::{Encryption, LoadError, Options};
pub use crate::location::{GroupResource, storage_path};

/// What every encrypted value starts with.
pub const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

/// Which value is transformed.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub resource: &'a GroupResource,
    /// Where the value is stored, such as `/registry/secrets/default/password`: the authenticated data.
    pub path: &'a str,
}

/// Why a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The object was written. It is refused if the provider cannot vouch for its key at the moment.
    Write,
    /// A value that is stored already is copied, as into a checkpoint. The last good key will do.
    Copy,
}

/// Which key a value was encrypted with; `None` of an [`Opened`] value: with none. Equal tags mean the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTag(Arc<str>);

impl KeyTag {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The tag of a key from the configuration. A fingerprint tells keys apart that share a name.
    pub(crate) fn of_secret(prefix: &str, secret: &[u8]) -> Self {
        Self::new(format!("{prefix}{}", kms::hash(secret)))
    }
}

/// A value read back.
#[derive(Debug)]
pub struct Opened {
    pub data: Vec<u8>,
    /// It should be written again even if the object has not changed: it is not encrypted as it would be now.
    pub stale: bool,
    pub key: Option<KeyTag>,
}

/// Why a value could not be transformed, in v1.34's words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransformError {
    message: String,
    /// What the KMS plugin answered, if it was asked.
    code: Option<Code>,
}

impl TransformError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None }
    }

    /// The status for metrics.
    pub(crate) fn status(&self) -> &'static str {
        self.code.map_or("unknown-non-grpc", Code::name)
    }
}

/// Encrypts and decrypts values.
pub trait Transformer: Send + Sync + 'static {
    /// Reads a stored value. May ask a KMS plugin, within its timeout.
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        context: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>>;

    /// Appends the stored form of `data` to `out`, and says which key it was encrypted with. Never waits. After an
    /// error `out` may hold a part of it.
    fn encrypt(
        &self,
        data: &[u8],
        context: &Context<'_>,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError>;

    /// Whether a value that was encrypted with this key (`None`: with none) would now be encrypted otherwise.
    fn is_stale(&self, key: Option<&KeyTag>) -> bool;

    /// Whether values are stored as they are, with [`Identity::check`] as the only check of what is read.
    fn is_identity(&self) -> bool {
        false
    }
}

/// Gives the transformer of each resource.
pub trait Transformers: Send + Sync + 'static {
    fn transformer(&self, resource: &GroupResource) -> Arc<dyn Transformer>;
}
