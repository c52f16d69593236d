//! The devices of pods: a pod goes only where the devices that it claims are or can be had, and they are its
//! own before it is bound.
//!
//! ```text
//!  view.rs       claims, classes and slices as they are read
//!  caches.rs     where they are read from, and the expressions that were compiled
//!  claims.rs     the claims of a pod: all there, and made for it                             (pure)
//!  needs.rs      what they ask of a node                                                     (pure)
//!  pools.rs      the devices that a node reaches                                             (pure)
//!  asks.rs       what the requests of claims come to on a node                               (pure)
//!  search.rs     which devices serve which request                                           (pure)
//!  allocation.rs what is written into a claim's status for that                              (pure)
//!  in_use.rs     which devices are taken, decided allocations included
//!  reserve.rs    the claims that have to be written before a pod can be bound                (pure)
//! ```
//!
//! What always holds: a device that is meant for a claim is taken at once, so that no other pod gets it, and stays
//! so until the cache shows it or it is known that nothing was written; a pod is bound only when all of its claims
//! are allocated and reserved for it.

mod allocation;
mod asks;
mod caches;
mod claims;
mod in_use;
mod needs;
mod pools;
mod reserve;
mod search;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use caches::{DeviceCaches, DeviceSources};
pub(crate) use claims::{claims_of, is_news, uses};
pub(crate) use in_use::InUse;
pub(crate) use needs::DeviceNeeds;
pub(crate) use reserve::{Reservation, Reserving, Write, let_go, next_write};
pub(crate) use view::{Claim, PodClaim, PodClaimStatus};
