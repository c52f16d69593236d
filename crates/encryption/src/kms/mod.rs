//! KMS v2: a plugin behind a unix socket holds the key encryption key.
//!
//! The plugin encrypts a random seed. The data keys of all values are derived from that seed locally, so a write needs
//! no call. [`probe`] keeps the seed in sync with the plugin's key, [`envelope`] reads and writes values, [`object`] is
//! the stored format, and [`grpc`] talks to the plugin.

pub(crate) mod envelope;
pub(crate) mod grpc;
pub(crate) mod messages;
pub(crate) mod object;
pub(crate) mod probe;

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Returns `sha256:` and the hash in hexadecimal, or an empty string for empty data. Key IDs are only shown in this
/// form.
pub(crate) fn hash(data: &[u8]) -> String {
    if data.is_empty() {
        return String::new();
    }
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(data) {
        // Writing to a string cannot fail.
        _ = write!(text, "{byte:02x}");
    }
    text
}
