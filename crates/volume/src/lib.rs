//! Claims, volumes and storage classes: shared by the controllers and the scheduler.
//!
//! ```text
//!  claim.rs      typed PersistentVolumeClaim
//!  volume.rs     typed PersistentVolume
//!  class.rs      typed StorageClass, and which one is the default
//!  pod.rs        the claims that a pod uses, and their index
//!  matching.rs   which volume satisfies a claim
//!  binding.rs    the writes of a binding
//!  in_tree.rs    in-tree volume sources
//!  inline.rs     inline disks of pods
//!  migrated.rs   CSI drivers of migrated in-tree plugins
//!  latest.rs     a cache overlaid with recent writes
//! ```
//!
//! Invariants: decisions are pure. The controller and the scheduler write the same fields and annotations when they
//! bind, so that either can complete what the other began.

pub mod binding;
mod claim;
mod class;
mod in_tree;
pub mod inline;
mod latest;
pub mod matching;
pub mod migrated;
mod pod;
mod volume;

pub use claim::{Claim, ClaimSpec, ClaimStatus};
pub use class::{Class, default_class, is_delayed};
pub use latest::Latest;
pub use pod::{
    PODS_BY_CLAIM, PodVolume, PodVolumes, bound_volume, claim_keys, claims_of, index_by_claim,
    index_pod_cache, is_terminated,
};
pub use volume::{
    ClaimRef, Csi, FREE_BY_CLASS, HostPath, Nfs, VOLUMES_BY_CLAIM, Volume, VolumeSpec, VolumeStatus,
    index_volume_cache, index_volumes,
};

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use setpoint_quantity::Quantity;

/// Claim annotation: it has been bound once.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Claim and volume annotation: a controller, not the user, made the binding.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Claim annotation: the node selected by the scheduler, for which a volume is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Volume annotation: its provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Claim annotation: the provisioner to use, and the deprecated name of the annotation.
pub const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// Claim and volume annotation: the CSI driver that its in-tree plugin is migrated to.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// Claim and volume annotation: its class, deprecated.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of classes without dynamic provisioning.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Quantities by resource.
pub type Amounts = BTreeMap<String, Value>;

/// Returns the amount of storage. Zero if unspecified.
pub fn storage(amounts: &Amounts) -> Quantity {
    amounts.get("storage").and_then(|amount| Quantity::of(amount).ok()).unwrap_or(Quantity::ZERO)
}

/// The metadata fields that only views expose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Annotated {
    /// `None` if there are none.
    pub annotations: Option<BTreeMap<Box<str>, Box<str>>>,
}

impl Annotated {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(|value| &**value)
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}
