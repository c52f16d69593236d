//! Encryption at rest, as in Kubernetes v1.34: the EncryptionConfiguration file, its providers, and the stored format.
//!
//! A [`Transformer`] converts an encoded object to its stored form and back. Every storage engine uses this trait, so
//! one can read what another wrote. This crate depends on neither a store nor the API.
//!
//! Invariants:
//! - A value is bound to its location: if the provider authenticates it, it cannot be moved to another key
//!   ([`Context::path`]).
//! - Writing never waits. The data encryption key is requested from a KMS plugin in advance. Only reading may call it.
//! - No input, however malformed, makes reading panic.
//! - No error and no log line contains a key.

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

/// The prefix of every encrypted value.
pub const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

/// The identity of the value being transformed.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub resource: &'a GroupResource,
    /// The location of the value, such as `/registry/secrets/default/password`: the authenticated data.
    pub path: &'a str,
}

/// Why a value is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An object is written. Fails if the provider cannot vouch for its key at the moment.
    Write,
    /// A stored value is copied, for example into a checkpoint. The last good key is sufficient.
    Copy,
}

/// The identity of the key a value was encrypted with. In [`Opened`], `None` means unencrypted. Equal tags mean the
/// same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTag(Arc<str>);

impl KeyTag {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the tag of a key from the configuration. A fingerprint distinguishes keys with the same name.
    pub(crate) fn of_secret(prefix: &str, secret: &[u8]) -> Self {
        Self::new(format!("{prefix}{}", kms::hash(secret)))
    }
}

/// A decrypted value.
#[derive(Debug)]
pub struct Opened {
    pub data: Vec<u8>,
    /// The value is not encrypted as it would be now, so it should be rewritten even if the object has not changed.
    pub stale: bool,
    pub key: Option<KeyTag>,
}

/// An error while transforming a value, with v1.34's message.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransformError {
    message: String,
    /// The status code of the KMS plugin, if it was called.
    code: Option<Code>,
}

impl TransformError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None }
    }

    /// Returns the status for metrics.
    pub(crate) fn status(&self) -> &'static str {
        self.code.map_or("unknown-non-grpc", Code::name)
    }
}

/// Encrypts and decrypts values.
pub trait Transformer: Send + Sync + 'static {
    /// Decrypts a stored value. May call a KMS plugin, within its timeout.
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        context: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>>;

    /// Appends the encrypted form of `data` to `out`, and returns the tag of the key. Never waits. After an error,
    /// `out` may contain part of it.
    fn encrypt(
        &self,
        data: &[u8],
        context: &Context<'_>,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError>;

    /// Returns whether a value encrypted with this key (`None`: unencrypted) would be encrypted differently now.
    fn is_stale(&self, key: Option<&KeyTag>) -> bool;

    /// Returns whether values are stored as they are. [`Identity::check`] is then the only check on reads.
    fn is_identity(&self) -> bool {
        false
    }
}

/// Provides the transformer for each resource.
pub trait Transformers: Send + Sync + 'static {
    fn transformer(&self, resource: &GroupResource) -> Arc<dyn Transformer>;
}
