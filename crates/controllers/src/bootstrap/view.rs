//! Tokens as their secrets tell of them.

use serde::Deserialize;
use setpoint::Object;
use setpoint_token::{BOOTSTRAP_TYPE, BootstrapSecret};

/// A secret, without what it keeps.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Secret {
    r#type: String,
}

setpoint::view!(Secret of k8s_openapi::api::core::v1::Secret);

impl Secret {
    pub(super) fn is_token(&self) -> bool {
        self.r#type == BOOTSTRAP_TYPE
    }
}

/// What a token's secret keeps; read when it is looked at.
pub(super) fn content(secret: &Object) -> BootstrapSecret {
    secret.decode().unwrap_or_default()
}
