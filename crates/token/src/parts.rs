//! The parts of a compact JSON Web Signature, before verification.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// A decoded, unverified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<'t> {
    /// The algorithm it claims to be signed with.
    pub algorithm: String,
    /// The ID of the key it claims to be signed with. May be empty.
    pub key_id: String,
    /// The signed bytes: the header and the claims, as received.
    pub signed: &'t [u8],
    pub claims: Vec<u8>,
    pub signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Critical extensions. None are supported.
    crit: Option<serde_json::Value>,
    b64: Option<serde_json::Value>,
}

impl<'t> Parts<'t> {
    pub fn of(token: &'t str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if header.crit.is_some() || header.b64.is_some() {
            return None;
        }
        Some(Self {
            algorithm: header.alg,
            key_id: header.kid,
            signed: signed.as_bytes(),
            claims: decode(claims)?,
            signature: decode(signature)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_parts_make_a_token() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let (header, claims) = (part(r#"{"alg":"RS256","kid":"k"}"#), part("{}"));
        let token = format!("{header}.{claims}.c2ln");
        let parts = Parts::of(&token).unwrap();
        assert_eq!((parts.algorithm.as_str(), parts.key_id.as_str()), ("RS256", "k"));
        assert_eq!((&*parts.claims, &*parts.signature), (&b"{}"[..], &b"sig"[..]));
        let critical = part(r#"{"alg":"RS256","crit":["x"]}"#);
        for bad in [
            String::new(),
            "..".into(),
            "a.b.c".into(),
            format!("{header}.{claims}"),
            format!("{header}.{claims}.c2ln.c2ln"),
            format!("{critical}.{claims}.c2ln"),
            format!("{header}=.{claims}.c2ln"),
        ] {
            assert_eq!(Parts::of(&bad), None, "{bad}");
        }
    }
}
