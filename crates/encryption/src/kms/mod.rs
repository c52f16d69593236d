//! KMS v2: a plugin behind a unix socket holds the key encryption key.
//!
//! The plugin encrypts a random seed; the data keys of all values are derived from it here, so a write costs no call.
//! [`probe`] keeps that seed in step with the plugin's key, [`envelope`] reads and writes values, [`object`] is what is
//! stored, and [`grpc`] talks to the plugin.

pub(crate) mod envelope;
pub(crate) mod grpc;
pub(crate) mod messages;
pub(crate) mod object;
pub(crate) mod probe;

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// `sha256:` and the hash in hexadecimal; empty for nothing. Key ids are only shown this way.
pub(crate) fn hash(data: &[u8]) -> String {
    if data.is_empty() {
        return String::new();
    }
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(data) {
        // Writing to a string does not fail.
        _ = write!(text, "{byte:02x}");
    }
    text
}
