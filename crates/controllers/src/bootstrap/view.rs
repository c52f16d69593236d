//! Reads bootstrap tokens from Secrets.

use serde::Deserialize;
use setpoint::Object;
use setpoint_token::{BOOTSTRAP_TYPE, BootstrapSecret};

/// A Secret, without its data.
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

/// Decodes the data of a token Secret.
pub(super) fn content(secret: &Object) -> BootstrapSecret {
    secret.decode().unwrap_or_default()
}
