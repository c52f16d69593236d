//! Typed views of CertificateSigningRequests.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;

use crate::workload::encoding::null_is_empty;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SigningRequest {
    pub(super) spec: Spec,
    pub(super) status: Status,
}

setpoint::view!(SigningRequest of k8s_openapi::api::certificates::v1::CertificateSigningRequest);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    /// Base64.
    request: String,
    pub(super) signer_name: String,
    pub(super) expiration_seconds: Option<i32>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) usages: Vec<String>,
    pub(super) username: String,
    pub(super) uid: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    /// Base64. Empty until issued.
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) certificate: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    pub(super) last_update_time: Option<Timestamp>,
}

impl SigningRequest {
    /// The PEM request.
    pub(super) fn request(&self) -> Vec<u8> {
        STANDARD.decode(&self.spec.request).unwrap_or_default()
    }

    /// The PEM certificate.
    pub(super) fn certificate(&self) -> Vec<u8> {
        STANDARD.decode(&self.status.certificate).unwrap_or_default()
    }

    pub(super) fn is_issued(&self) -> bool {
        !self.status.certificate.is_empty()
    }

    /// Whether there is a condition of this type, with any status. Approval is evaluated this way.
    pub(super) fn has(&self, r#type: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.r#type == r#type)
    }

    pub(super) fn has_true(&self, r#type: &str) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.r#type == r#type && matches!(&*condition.status, "" | "True"))
    }
}
