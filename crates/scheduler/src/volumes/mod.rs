//! Volume scheduling: a pod only goes to a node where its volumes are or can be made available, and its volumes are
//! bound before it is.
//!
//! ```text
//!  caches.rs   caches of claims, volumes and related objects, overlaid with assumed changes
//!  needs.rs    what a pod's claims require of a node, and which volumes satisfy them      (pure)
//!  disks.rs    inline disks that cannot be shared                                         (pure)
//!  limits.rs   volume limits of nodes                                                     (pure)
//!  prepare.rs  writes needed before the pod can be bound, and their progress              (pure)
//!  view.rs     typed CSI drivers, nodes, capacities and attachments
//! ```
//!
//! Invariants: a volume chosen for a claim is assumed bound at once, so that no other pod gets it. A pod is only bound
//! when the cache shows all of its claims bound.

mod caches;
mod disks;
mod limits;
mod needs;
mod prepare;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use caches::{VolumeCaches, VolumeSources};
pub(crate) use disks::DiskNeeds;
pub(crate) use needs::VolumeNeeds;
pub(crate) use prepare::{Preparation, Preparing, Progress};
