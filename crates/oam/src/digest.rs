//! Hashes of JSON, for names and to notice changes.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns 16 hex digits that depend on all of a value.
pub(crate) fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns ten hex digits.
pub(crate) fn short_hash(value: &Value) -> String {
    let mut hash = hash(value);
    hash.truncate(10);
    hash
}
