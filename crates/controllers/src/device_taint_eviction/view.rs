//! Claims, slices and rules as they are read.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

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

/// A device that a claim has, and which taints of it are tolerated.
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
#[serde(rename_all = "camelCase", default)]
pub(super) struct Toleration {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) value: String,
    pub(super) effect: String,
    pub(super) toleration_seconds: Option<i64>,
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
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) effect: String,
    pub(super) time_added: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rule {
    pub(super) spec: RuleSpec,
}

setpoint::view!(Rule of k8s_openapi::api::resource::v1alpha3::DeviceTaintRule);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RuleSpec {
    pub(super) device_selector: Option<Selector>,
    pub(super) taint: Taint,
}

/// What a device has to be for a rule to be about it; what is not said does not matter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Selector {
    pub(super) device_class_name: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) pool: Option<String>,
    pub(super) device: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) selectors: Vec<Value>,
}
