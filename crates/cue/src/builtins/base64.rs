//! Base64 with the standard alphabet.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text.trim_end_matches(['\n', '\r'])).map_err(|error| format!("not base64: {error}"))
}
