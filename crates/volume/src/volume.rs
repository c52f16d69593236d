//! Typed view of a PersistentVolume.

use std::sync::Arc;

use serde::Deserialize;
use setpoint::indexer::{IndexFn, Indexer};
use setpoint::{Cached, Informer, Key, Labels};
use setpoint_placement::NodeSelector;
use setpoint_quantity::Quantity;

use crate::in_tree::{FibreChannel, Iscsi, MigratedSource};
use crate::migrated::{AZURE_DISK, AZURE_FILE, CINDER, EBS, GCE, PORTWORX, VSPHERE};
use crate::{Amounts, Annotated, BETA_CLASS, Claim, storage};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: Annotated,
    pub spec: VolumeSpec,
    pub status: VolumeStatus,
}

setpoint::view!(Volume of k8s_openapi::api::core::v1::PersistentVolume);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    pub capacity: Option<Amounts>,
    pub access_modes: Option<Vec<Box<str>>>,
    pub claim_ref: Option<ClaimRef>,
    pub persistent_volume_reclaim_policy: Box<str>,
    pub storage_class_name: Box<str>,
    pub volume_mode: Option<Box<str>>,
    pub volume_attributes_class_name: Option<Box<str>>,
    pub node_affinity: Option<NodeAffinity>,
    pub host_path: Option<HostPath>,
    pub nfs: Option<Nfs>,
    pub csi: Option<Csi>,
    pub iscsi: Option<Box<Iscsi>>,
    pub fc: Option<Box<FibreChannel>>,
    aws_elastic_block_store: Option<Box<MigratedSource>>,
    gce_persistent_disk: Option<Box<MigratedSource>>,
    cinder: Option<Box<MigratedSource>>,
    azure_disk: Option<Box<MigratedSource>>,
    azure_file: Option<Box<MigratedSource>>,
    vsphere_volume: Option<Box<MigratedSource>>,
    portworx_volume: Option<Box<MigratedSource>>,
}

/// The claim that a volume belongs to. Without a uid it is reserved, not bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostPath {
    pub path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Nfs {
    pub server: String,
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Csi {
    pub driver: Box<str>,
    pub volume_handle: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStatus {
    pub phase: Box<str>,
}

impl Volume {
    /// Its class. Empty if none.
    pub fn class(&self) -> &str {
        self.metadata.get(BETA_CLASS).unwrap_or(&self.spec.storage_class_name)
    }

    /// Its capacity.
    pub fn size(&self) -> Quantity {
        self.spec.capacity.as_ref().map_or(Quantity::ZERO, storage)
    }

    pub fn access_modes(&self) -> &[Box<str>] {
        self.spec.access_modes.as_deref().unwrap_or_default()
    }

    /// The migrated in-tree plugin of its source, if any.
    pub fn migrated_plugin(&self) -> Option<&'static str> {
        self.migrated_source().map(|(plugin, _)| plugin)
    }

    /// Its in-tree source, if it is migrated to CSI.
    pub(crate) fn migrated_source(&self) -> Option<(&'static str, &MigratedSource)> {
        let spec = &self.spec;
        let sources = [
            (EBS, &spec.aws_elastic_block_store),
            (GCE, &spec.gce_persistent_disk),
            (CINDER, &spec.cinder),
            (AZURE_DISK, &spec.azure_disk),
            (AZURE_FILE, &spec.azure_file),
            (VSPHERE, &spec.vsphere_volume),
            (PORTWORX, &spec.portworx_volume),
        ];
        sources.into_iter().find_map(|(plugin, source)| Some((plugin, source.as_deref()?)))
    }

    /// The unique name of a network disk.
    pub fn network_name(&self) -> Option<String> {
        let fibre = || self.spec.fc.as_ref()?.unique_name();
        self.spec.iscsi.as_ref().map(|iscsi| iscsi.unique_name()).or_else(fibre)
    }

    /// Whether several nodes may attach it at once. Without access modes, its driver decides.
    pub fn can_be_shared(&self) -> bool {
        let modes = self.access_modes();
        modes.is_empty() || modes.iter().any(|mode| matches!(&**mode, "ReadWriteMany" | "ReadOnlyMany"))
    }

    /// Whether a node with these labels can access it.
    pub fn is_reached_by(&self, labels: &Labels) -> bool {
        let required = self.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        // Volumes select nodes by labels only.
        required.is_none_or(|required| required.matches("", labels))
    }

    /// Whether it is bound to or reserved for this claim.
    pub fn is_for(&self, claim: &Cached<Claim>) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|reference| {
            reference.names(claim.key()) && (reference.uid.is_empty() || reference.uid == claim.meta().uid)
        })
    }
}

impl Csi {
    /// The unique volume name.
    pub fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver, self.volume_handle)
    }
}

impl ClaimRef {
    pub fn key(&self) -> Key {
        Key::namespaced(&*self.namespace, &*self.name)
    }

    pub fn names(&self, claim: &Key) -> bool {
        claim.namespace() == Some(&self.namespace) && claim.name() == &*self.name
    }
}

/// Index of volumes by claim.
pub const VOLUMES_BY_CLAIM: &str = "claim";
/// Index of volumes without a claim, by class.
pub const FREE_BY_CLASS: &str = "free-by-class";

/// Adds the indexes [`VOLUMES_BY_CLAIM`] and [`FREE_BY_CLASS`].
pub fn index_volumes(volumes: &Informer) {
    index_volume_cache(volumes.lister::<Volume>().objects());
}

/// Adds the indexes to a cache without an informer.
pub fn index_volume_cache(volumes: &Indexer) {
    let by_claim: IndexFn = Arc::new(|volume| {
        let claim = volume.view::<Volume>().ok().and_then(|view| view.spec.claim_ref.as_ref());
        claim.map(|claim| claim.key().to_string()).into_iter().collect()
    });
    let free: IndexFn = Arc::new(|volume| match volume.view::<Volume>() {
        Ok(view) if view.spec.claim_ref.is_none() => vec![view.class().to_owned()],
        _ => Vec::new(),
    });
    volumes.add_index(VOLUMES_BY_CLAIM, by_claim);
    volumes.add_index(FREE_BY_CLASS, free);
}
