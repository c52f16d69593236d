//! Typed view of a ResourceQuota.

use serde::{Deserialize, Serialize};
use setpoint_quota::{Resources, Scopes};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceQuota {
    pub(super) spec: Spec,
    pub(super) status: Status,
}

setpoint::view!(ResourceQuota of k8s_openapi::api::core::v1::ResourceQuota);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Spec {
    pub(super) hard: Resources,
    #[serde(flatten)]
    pub(super) scopes: Scopes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) hard: Option<Resources>,
    pub(super) used: Option<Resources>,
}
