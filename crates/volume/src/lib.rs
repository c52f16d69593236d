//! Claims, volumes and their classes: what the controllers and the scheduler both have to know of them.
//!
//! ```text
//!  claim.rs      a PersistentVolumeClaim, as controllers read it
//!  volume.rs     a PersistentVolume
//!  class.rs      a StorageClass, and which one is the default
//!  pod.rs        the claims that a pod uses, and the index that finds its pods
//!  matching.rs   which volume serves a claim
//!  binding.rs    what binding writes: a claim's volume and a volume's claim
//!  in_tree.rs    sources of volumes of plugins that were once built in
//!  inline.rs     disks that pods name themselves
//!  migrated.rs   the drivers that have taken over from built-in plugins
//!  latest.rs     a cache, with what was written since laid over it
//! ```
//!
//! What always holds: deciding is pure. Whoever binds, be it the controller or the scheduler, writes
//! the same fields and annotations, so that either can finish what the other has begun.

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
    PODS_BY_CLAIM, PodVolume, PodVolumes, bound_volume, claim_keys, claims_of, index_by_claim, is_over,
};
pub use volume::{
    ClaimRef, Csi, FREE_BY_CLASS, HostPath, Nfs, VOLUMES_BY_CLAIM, Volume, VolumeSpec, VolumeStatus,
    index_volume_cache, index_volumes,
};

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use setpoint_quantity::Quantity;

/// On a claim: it has been bound once.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: a controller, not the user, made the binding.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node that the scheduler has chosen, for which a volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume: who made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: who is to make a volume for it. The second is what it was called before.
pub const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// On a claim or a volume: the driver that has taken over from a built-in plugin.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a claim or a volume: its class, from before there was a field.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of classes whose volumes are made by hand.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Value>;

/// The amount of storage among others; nothing where none is said.
pub fn storage(amounts: &Amounts) -> Quantity {
    amounts.get("storage").and_then(|amount| Quantity::of(amount).ok()).unwrap_or(Quantity::ZERO)
}

/// The part of the metadata that only views show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Annotated {
    /// None where there are none.
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
