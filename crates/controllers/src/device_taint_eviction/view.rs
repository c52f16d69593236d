//! Typed views of claims and slices.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use setpoint_device::{Taint, Toleration};

use crate::resource_claim::view::Consumer;
use crate::workload::encoding::null_is_empty;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim {
    pub(super) status: ClaimStatus,
}

setpoint::view!(Claim of k8s_openapi::api::resource::v1::ResourceClaim);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimStatus {
    pub(super) allocation: Option<Allocation>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) reserved_for: Vec<Consumer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Allocation {
    pub(super) devices: Devices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Devices {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) results: Vec<Allocated>,
}

/// A device allocated to a claim, with its tolerations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Allocated {
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Slice {
    pub(super) spec: SliceSpec,
}

setpoint::view!(Slice of k8s_openapi::api::resource::v1::ResourceSlice);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SliceSpec {
    pub(super) driver: String,
    pub(super) pool: Pool,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) devices: Vec<Device>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) generation: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Device {
    pub(super) name: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) taints: Vec<Taint>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) attributes: BTreeMap<String, Value>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) capacity: BTreeMap<String, Value>,
}
