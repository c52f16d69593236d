//! Typed view of a PersistentVolumeClaim.

use serde::Deserialize;
use serde_json::Value;
use setpoint::LabelSelector;
use setpoint_quantity::Quantity;

use crate::{Amounts, Annotated, BETA_CLASS, BIND_COMPLETED, SELECTED_NODE, storage};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: Annotated,
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
}

setpoint::view!(Claim of k8s_openapi::api::core::v1::PersistentVolumeClaim);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    pub access_modes: Option<Vec<Box<str>>>,
    pub selector: Option<LabelSelector>,
    pub resources: Resources,
    /// Empty if it has no volume.
    pub volume_name: Box<str>,
    /// `None` if unspecified, empty if no class is wanted.
    pub storage_class_name: Option<Box<str>>,
    pub volume_mode: Option<Box<str>>,
    pub volume_attributes_class_name: Option<Box<str>>,
    pub data_source: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub requests: Option<Amounts>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    pub phase: Box<str>,
    pub access_modes: Option<Vec<Box<str>>>,
    pub capacity: Option<Amounts>,
    pub current_volume_attributes_class_name: Option<Box<str>>,
    pub conditions: Option<Vec<Value>>,
    pub allocated_resources: Option<Amounts>,
    pub allocated_resource_statuses: Option<std::collections::BTreeMap<String, String>>,
    pub modify_volume_status: Option<ModifyVolumeStatus>,
}

/// The status of a VolumeAttributesClass change.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModifyVolumeStatus {
    pub target_volume_attributes_class_name: Option<Box<str>>,
}

impl Claim {
    /// The class it names. Empty if none.
    pub fn class(&self) -> &str {
        self.metadata.get(BETA_CLASS).or(self.spec.storage_class_name.as_deref()).unwrap_or_default()
    }

    /// Whether a class is specified, even if it is the empty one.
    pub fn has_class(&self) -> bool {
        self.metadata.has(BETA_CLASS) || self.spec.storage_class_name.is_some()
    }

    /// Whether it has been bound before.
    pub fn was_bound(&self) -> bool {
        self.metadata.has(BIND_COMPLETED)
    }

    /// Whether it has a volume and the binding is complete.
    pub fn is_bound(&self) -> bool {
        !self.spec.volume_name.is_empty() && self.was_bound()
    }

    /// Whether the scheduler has selected a node to provision a volume for.
    pub fn has_selected_node(&self) -> bool {
        self.metadata.has(SELECTED_NODE)
    }

    /// The requested storage.
    pub fn requested(&self) -> Quantity {
        self.spec.resources.requests.as_ref().map_or(Quantity::ZERO, storage)
    }

    pub fn access_modes(&self) -> &[Box<str>] {
        self.spec.access_modes.as_deref().unwrap_or_default()
    }
}
