//! Typed views of nodes, attachments and drivers.

use serde::Deserialize;
use setpoint::Key;
use setpoint_volume::{Annotated, Csi};

/// The annotation of nodes managed by this controller.
const SERVED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The taint an administrator sets on a node that is down for good.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    served: bool,
    out_of_service: bool,
    ready: bool,
    /// `status.volumesInUse`.
    pub(super) in_use: Vec<Box<str>>,
    /// `status.volumesAttached`.
    pub(super) attached: Vec<Box<str>>,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Encoded {
    metadata: Annotated,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Option<Vec<Taint>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Option<Vec<Condition>>,
    volumes_in_use: Option<Vec<Box<str>>>,
    volumes_attached: Option<Vec<Attached>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: Box<str>,
    status: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attached {
    name: Box<str>,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Encoded { metadata, spec, status } = Encoded::deserialize(deserializer)?;
        let ready = |one: &Condition| &*one.r#type == "Ready" && &*one.status == "True";
        Ok(Self {
            served: metadata.has(SERVED),
            out_of_service: spec.taints.iter().flatten().any(|taint| &*taint.key == OUT_OF_SERVICE),
            ready: status.conditions.iter().flatten().any(ready),
            in_use: status.volumes_in_use.unwrap_or_default(),
            attached: status.volumes_attached.into_iter().flatten().map(|one| one.name).collect(),
        })
    }
}

impl Node {
    pub(super) fn is_served(&self) -> bool {
        self.served
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.ready
    }

    pub(super) fn is_out_of_service(&self) -> bool {
        self.out_of_service
    }

    pub(super) fn uses(&self, volume: &str) -> bool {
        self.in_use.iter().any(|name| **name == *volume)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Attachment {
    pub(super) spec: AttachmentSpec,
    pub(super) status: AttachmentStatus,
}

setpoint::view!(Attachment of k8s_openapi::api::storage::v1::VolumeAttachment);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AttachmentSpec {
    pub(super) attacher: Box<str>,
    pub(super) node_name: Box<str>,
    source: Source,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    persistent_volume_name: Option<Box<str>>,
    inline_volume_spec: Option<Box<InlineSpec>>,
}

/// The inline volume spec of an attachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct InlineSpec {
    csi: Option<Csi>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AttachmentStatus {
    pub(super) attached: bool,
    pub(super) attach_error: Option<AttachError>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AttachError {
    pub(super) message: String,
}

impl Attachment {
    /// Returns the key of the attached disk.
    pub(super) fn disk(&self) -> Option<Key> {
        let named = self.spec.source.persistent_volume_name.as_deref().map(Key::cluster);
        named.or_else(|| self.inline().map(Csi::unique_name).map(Key::cluster))
    }

    /// Returns the CSI source of an inline disk.
    pub(super) fn inline(&self) -> Option<&Csi> {
        self.spec.source.inline_volume_spec.as_ref()?.csi.as_ref()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Driver {
    spec: DriverSpec,
}

setpoint::view!(Driver of k8s_openapi::api::storage::v1::CSIDriver);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DriverSpec {
    attach_required: Option<bool>,
}

impl Driver {
    pub(super) fn attaches(&self) -> bool {
        self.spec.attach_required != Some(false)
    }
}
