//! Sharding: of many replicas each works on its part of the keys, and no key is worked on by two.
//!
//! ```text
//!  membership   one Lease per replica, renewed like a leader's; its holder is an incarnation (`pod-a/x7k2m`)
//!  the map      one Lease whose annotation says which incarnation owns which part; written with its version
//!               as precondition, so of two writers one wins
//!
//!  a part's owner lives, and should not own it ──► drain: begin no more work, wait for what is under way
//!                                              ──► write the next owner into the map
//!  a part's owner is silent for the lease      ──► release its membership, with its version as precondition:
//!                                                  if it renews first, it lives; else it has to join anew
//!                                              ──► take its parts
//! ```
//!
//! What always holds:
//! - a replica works on a part only while the map names its incarnation *and* its membership was renewed within
//!   the renew deadline, on its own clock;
//! - an incarnation that lost its membership never comes back, so a part taken from it is never its again;
//! - an owner hands a part on only when it works on nothing of it.
//!
//! From these: no two replicas work on one key at the same time. And a key is without an owner for no longer
//! than the lease: an owner that falls silent stops at the renew deadline and is replaced after the duration.

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
