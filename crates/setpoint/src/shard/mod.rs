//! Sharding: each of several replicas handles some of the keys, and no key is handled by two replicas at once.
//!
//! ```text
//!  membership   one Lease per replica, renewed like a leader's; its holder is an incarnation (`pod-a/x7k2m`)
//!  the map      one Lease whose annotation says which incarnation owns which shard; written with its version
//!               as precondition, so one of two concurrent writers wins
//!
//!  a live owner should not own a shard         ──► drain: start no more work, wait for work in progress
//!                                              ──► write the next owner into the map
//!  an owner has not renewed within its lease   ──► release its membership, with its version as precondition:
//!                                                  if it renews first, it lives; otherwise it has to rejoin
//!                                              ──► take its shards
//! ```
//!
//! Invariants:
//! - A replica works on a shard only while the map names its incarnation *and* its membership was renewed within the
//!   renew deadline, according to its own clock.
//! - An incarnation that lost its membership never comes back, so it never regains a shard taken from it.
//! - An owner hands over a shard only while it is not working on any of the shard's keys.
//!
//! It follows that no two replicas work on the same key at the same time. A key is without an owner for no longer than
//! the lease duration: an owner that stops renewing stops working at the renew deadline and is replaced after the lease
//! duration.

mod directory;
mod member;
mod ownership;
mod reconciler;
pub(crate) mod ring;
#[cfg(test)]
mod tests;

pub(crate) use member::when_ready;
pub use member::{Sharding, ShardingOptions};
pub use ownership::Shards;
pub use reconciler::Sharded;
