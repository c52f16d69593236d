//! The volumes of pods: a pod goes only where its volumes are or can be, and its volumes are bound before it is.
//!
//! ```text
//!  caches.rs   claims, volumes and what goes with them, with what is assumed laid over
//!  needs.rs    what the claims of a pod ask of a node, and which volumes serve them there   (pure)
//!  disks.rs    disks that pods name themselves and cannot share                              (pure)
//!  limits.rs   how many volumes a node can have                                             (pure)
//!  prepare.rs  what has to be written before the pod can be bound, and how far that is      (pure)
//!  view.rs     what is read of drivers, their nodes and their capacities
//! ```
//!
//! What always holds: a volume that is meant for a claim is assumed to be so at once, so that no other pod gets
//! it; the pod is bound only when the cache shows all of its claims bound.

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
