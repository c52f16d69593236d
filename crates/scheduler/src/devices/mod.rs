//! Dynamic resource allocation: a pod only goes to a node where its claimed devices are available, and the devices are
//! reserved for it before it is bound.
//!
//! ```text
//!  view.rs       typed claims, classes and slices
//!  caches.rs     their caches, and compiled CEL expressions
//!  claims.rs     finds the claims of a pod                             (pure)
//!  needs.rs      what the claims require of a node                     (pure)
//!  pools.rs      the devices accessible from a node                    (pure)
//!  requests.rs   resolves the requests of claims for a node            (pure)
//!  search.rs     matches devices to requests                           (pure)
//!  allocation.rs builds the allocation in a claim's status             (pure)
//!  in_use.rs     tracks allocated devices, decided ones included
//!  reserve.rs    claim writes needed before a pod can be bound         (pure)
//! ```
//!
//! Invariants: a device chosen for a claim is taken at once, so that no other pod gets it, and stays taken until the
//! cache shows it or it is known that nothing was written. A pod is only bound when all of its claims are allocated and
//! reserved for it.

mod allocation;
mod caches;
mod claims;
mod in_use;
mod needs;
mod pools;
mod requests;
mod reserve;
mod search;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use caches::{DeviceCaches, DeviceSources};
pub(crate) use claims::{changes_state, claims_of, uses};
pub(crate) use in_use::InUse;
pub(crate) use needs::DeviceNeeds;
pub(crate) use reserve::{Reservation, Reserving, Write, deallocation, next_write};
pub(crate) use view::{Claim, PodClaim, PodClaimStatus};
