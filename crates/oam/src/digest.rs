//! Hashes of JSON, for names and change detection.

use std::io;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Feeds what is written to a hash.
struct Feed(Sha256);

impl io::Write for Feed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns 16 hex digits that depend on all of a value.
pub(crate) fn hash(value: &impl Serialize) -> String {
    let mut feed = io::BufWriter::new(Feed(Sha256::new()));
    // Neither a hash nor JSON in memory fails.
    let _ = serde_json::to_writer(&mut feed, value);
    let digest = feed.into_inner().map(|feed| feed.0.finalize()).unwrap_or_default();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns ten hex digits.
pub(crate) fn short_hash(value: &Value) -> String {
    let mut hash = hash(value);
    hash.truncate(10);
    hash
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hash_is_that_of_the_text() {
        let value = json!({"a": ["b", 1, "x".repeat(20_000)]});
        let expected: String =
            Sha256::digest(value.to_string())[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash(&value), expected);
        assert_eq!(short_hash(&value), expected[..10]);
    }
}
