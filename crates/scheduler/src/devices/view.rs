//! Typed views of claims, classes and slices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use setpoint_device::{Selector, Taint, Toleration};
use setpoint_placement::NodeSelector;

/// An entry of a pod's `resourceClaims`: an existing claim or a template.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodClaim {
    pub(super) name: Box<str>,
    pub(super) resource_claim_name: Option<Box<str>>,
}

/// The claim generated for an entry. `None` if none is needed.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodClaimStatus {
    pub(super) name: Box<str>,
    pub(super) resource_claim_name: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub(super) metadata: ClaimMetadata,
    pub(super) spec: ClaimSpec,
    pub(super) status: ClaimStatus,
}

setpoint::view!(Claim of k8s_openapi::api::resource::v1::ResourceClaim);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimMetadata {
    pub(super) finalizers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimSpec {
    pub(super) devices: ClaimDevices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimDevices {
    pub(super) requests: Vec<Request>,
    pub(super) constraints: Vec<Constraint>,
    pub(super) config: Vec<Config>,
}

/// A device request: either exactly one, or a prioritized list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) exactly: Option<ExactRequest>,
    pub(super) first_available: Vec<ExactRequest>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExactRequest {
    /// Only set for alternatives of a list.
    pub(super) name: String,
    pub(super) device_class_name: String,
    pub(super) selectors: Vec<Selector>,
    pub(super) allocation_mode: String,
    pub(super) count: i64,
    pub(super) admin_access: Option<bool>,
    pub(super) tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Constraint {
    pub(super) requests: Vec<String>,
    pub(super) match_attribute: Option<String>,
}

/// Driver configuration for devices.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) requests: Vec<String>,
    pub(super) opaque: Option<Value>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimStatus {
    pub(super) allocation: Option<Allocation>,
    pub(super) reserved_for: Vec<Consumer>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Allocation {
    pub(super) devices: AllocatedDevices,
    pub(super) node_selector: Option<NodeSelector>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct AllocatedDevices {
    pub(super) results: Vec<Allocated>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Allocated {
    #[serde(flatten)]
    pub(super) id: DeviceId,
    pub(super) admin_access: Option<bool>,
}

/// Identifies a device in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceId {
    pub(super) driver: Box<str>,
    pub(super) pool: Box<str>,
    pub(super) device: Box<str>,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// A user of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Consumer {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Claim {
    pub(super) fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }

    pub(super) fn is_reserved_for(&self, pod_uid: &str) -> bool {
        self.status.reserved_for.iter().any(|consumer| consumer.uid == pod_uid)
    }

    /// Lists the devices allocated exclusively to the claim.
    pub(super) fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        let results = self.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
        results.filter(|result| result.admin_access != Some(true)).map(|result| &result.id)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Class {
    pub(super) spec: ClassSpec,
}

setpoint::view!(Class of k8s_openapi::api::resource::v1::DeviceClass);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClassSpec {
    pub(super) selectors: Vec<Selector>,
    pub(super) config: Vec<Config>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Slice {
    pub(super) spec: SliceSpec,
}

setpoint::view!(Slice of k8s_openapi::api::resource::v1::ResourceSlice);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceSpec {
    pub(super) driver: Box<str>,
    pub(super) pool: PoolPart,
    pub(super) node_name: Option<Box<str>>,
    pub(super) node_selector: Option<NodeSelector>,
    pub(super) all_nodes: Option<bool>,
    pub(super) per_device_node_selection: Option<bool>,
    pub(super) devices: Vec<Device>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PoolPart {
    pub(super) name: Box<str>,
    pub(super) generation: i64,
    pub(super) resource_slice_count: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Device {
    pub(super) name: Box<str>,
    pub(super) attributes: BTreeMap<String, Value>,
    pub(super) capacity: BTreeMap<String, Value>,
    pub(super) taints: Vec<Taint>,
    pub(super) consumes_counters: Vec<serde::de::IgnoredAny>,
    pub(super) binding_conditions: Vec<serde::de::IgnoredAny>,
}
