//! Resources allocated to services: cluster IPs and node ports.
//!
//! Addresses come from ranges that ServiceCIDRs can extend. Every address in use has an IPAddress, created before the
//! service that holds it and deleted after it. Node ports are in a bitmap.
//!
//! Invariants:
//! - this server remembers nothing: what is in use is in the store, which other servers write to as well;
//! - a number is in use from before its service is stored until after it is gone.

mod allocator;
mod claim;
mod families;
mod in_use;
mod node_ports;
mod objects;
mod range;
pub(crate) mod repair;
mod span;

pub(crate) use allocator::ServiceAllocator;
pub(crate) use claim::Claim;
pub use range::first_address;

/// The stored resource whose objects hold addresses and ports.
pub(crate) const SERVICES: &str = "services";
