//! Tokens as their secrets tell of them.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use setpoint::Object;

use crate::workload::encoding::null_is_empty;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const PREFIX: &str = "bootstrap-token-";

/// A secret, without what it keeps.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Secret {
    r#type: String,
}

setpoint::view!(Secret of k8s_openapi::api::core::v1::Secret);

impl Secret {
    pub(super) fn is_token(&self) -> bool {
        self.r#type == TYPE
    }
}

/// What a token's secret keeps; read when it is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    #[serde(deserialize_with = "null_is_empty")]
    data: BTreeMap<String, String>,
}

/// How long a token is good for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    Forever,
    For(Duration),
    Nothing,
}

/// A token that may sign.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) id: String,
    pub(super) secret: String,
}

impl Content {
    pub(super) fn of(secret: &Object) -> Self {
        secret.decode().unwrap_or_default()
    }

    fn get(&self, field: &str) -> Option<String> {
        let bytes = STANDARD.decode(self.data.get(field)?).ok()?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    }

    /// A token whose end cannot be read has ended.
    pub(super) fn left(&self, now: Timestamp) -> Left {
        let Some(end) = self.get("expiration") else { return Left::Forever };
        let left = end.parse::<Timestamp>().map(|end| end.duration_since(now));
        match left.ok().and_then(|left| Duration::try_from(left).ok()).filter(|left| !left.is_zero()) {
            Some(left) => Left::For(left),
            None => Left::Nothing,
        }
    }

    /// The token of a secret of this name, if it is one that may sign now.
    pub(super) fn token(&self, name: &str, now: Timestamp) -> Option<Token> {
        let id = self.get("token-id").filter(|id| name.strip_prefix(PREFIX) == Some(id) && is_id(id))?;
        let secret = self.get("token-secret")?;
        let may_sign = self.get("usage-bootstrap-signing").as_deref() == Some("true");
        (may_sign && self.left(now) != Left::Nothing).then_some(Token { id, secret })
    }
}

fn is_id(id: &str) -> bool {
    id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
