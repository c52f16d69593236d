//! Typed views of CSI drivers, nodes, capacities and attachments.

use serde::Deserialize;
use serde_json::Value;
use setpoint::LabelSelector;
use setpoint_quantity::Quantity;

/// The CSI drivers on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct CsiNode {
    spec: CsiNodeSpec,
}

setpoint::view!(CsiNode of k8s_openapi::api::storage::v1::CSINode);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct CsiNodeSpec {
    drivers: Option<Vec<NodeDriver>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct NodeDriver {
    name: Box<str>,
    allocatable: Option<Allocatable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Allocatable {
    count: Option<usize>,
}

impl CsiNode {
    /// Returns the node's volume limit for a driver. `None` if there is no limit.
    pub(crate) fn limit(&self, driver: &str) -> Option<usize> {
        let mut drivers = self.spec.drivers.iter().flatten();
        drivers.find(|one| *one.name == *driver)?.allocatable.as_ref()?.count
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Driver {
    spec: DriverSpec,
}

setpoint::view!(Driver of k8s_openapi::api::storage::v1::CSIDriver);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DriverSpec {
    storage_capacity: Option<bool>,
}

impl Driver {
    /// Whether the driver publishes storage capacity.
    pub(crate) fn publishes_capacity(&self) -> bool {
        self.spec.storage_capacity == Some(true)
    }
}

/// The available capacity for a storage class on some nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Capacity {
    pub(crate) storage_class_name: Box<str>,
    pub(crate) node_topology: Option<LabelSelector>,
    capacity: Option<Value>,
    maximum_volume_size: Option<Value>,
}

setpoint::view!(Capacity of k8s_openapi::api::storage::v1::CSIStorageCapacity);

impl Capacity {
    pub(crate) fn has_room_for(&self, size: Quantity) -> bool {
        let limit = self.maximum_volume_size.as_ref().or(self.capacity.as_ref());
        limit.and_then(|limit| Quantity::of(limit).ok()).is_some_and(|limit| limit.value() >= size.value())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Attachment {
    spec: AttachmentSpec,
}

setpoint::view!(Attachment of k8s_openapi::api::storage::v1::VolumeAttachment);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSpec {
    node_name: Box<str>,
    source: Source,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    persistent_volume_name: Option<Box<str>>,
}

impl Attachment {
    pub(crate) fn node(&self) -> &str {
        &self.spec.node_name
    }

    pub(crate) fn volume(&self) -> Option<&str> {
        self.spec.source.persistent_volume_name.as_deref()
    }
}
