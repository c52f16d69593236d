//! The EncryptionConfiguration of `apiserver.config.k8s.io/v1`.
//!
//! Key secrets are redacted wherever a configuration is printed.

mod decode;
mod validate;

use std::fmt;
use std::time::Duration;

use zeroize::Zeroizing;

pub use self::decode::parse;
pub use self::validate::validate;

pub(crate) const API_VERSION: &str = "apiserver.config.k8s.io/v1";
pub(crate) const KIND: &str = "EncryptionConfiguration";

/// The maximum file size. A configuration is only a few lines per key and resource.
pub(crate) const MAX_FILE: usize = 1 << 20;

/// Which resources are encrypted with which providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptionConfiguration {
    pub resources: Vec<ResourceConfiguration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceConfiguration {
    /// `resource`, `resource.group`, `*.`, `*.group` or `*.*`.
    pub resources: Vec<String>,
    /// The first provider writes, and all of them read.
    pub providers: Vec<ProviderConfiguration>,
}

/// A valid entry has exactly one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderConfiguration {
    pub aesgcm: Option<Vec<Key>>,
    pub aescbc: Option<Vec<Key>>,
    pub secretbox: Option<Vec<Key>>,
    pub identity: bool,
    pub kms: Option<KmsConfiguration>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    /// The secret, in base64.
    pub secret: Zeroizing<String>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key {{ name: {:?}, secret: [REDACTED] }}", self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsConfiguration {
    pub api_version: String,
    pub name: String,
    pub cache_size: Option<i32>,
    pub endpoint: String,
    /// Negative values are invalid. They are kept as written, for the error message.
    pub timeout: Timeout,
}

/// A duration in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeout {
    pub(crate) text: String,
    /// `None` if zero or negative.
    pub(crate) duration: Option<Duration>,
}

#[cfg(test)]
mod tests;
