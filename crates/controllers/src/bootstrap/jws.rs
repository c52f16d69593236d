//! Detached JWS signatures: `header..signature`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::json;
use setpoint_token::BootstrapToken;

/// Signs a text with a token. The text itself is not part of the result; the verifier already has it.
pub(super) fn detached(content: &str, token: &BootstrapToken) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": token.id}).to_string());
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{header}..{signature}")
}
