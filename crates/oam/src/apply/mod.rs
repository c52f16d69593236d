//! Objects in the cluster: who owns them, how they are written, which are recorded, which are deleted.
//!
//! ```text
//!  cluster.rs   reads and writes objects of any kind; watches the kinds that applications use
//!  identity.rs  which object
//!  drift.rs     whether a live object has what was applied                         (pure)
//!  paths.rs     values at paths such as spec.containers[0].image                  (pure)
//!  claims.rs    who is about to write which object
//!  ownership.rs whose object it is, and whether it may be written                 (pure)
//!  tracker.rs   ResourceTrackers: the record of what an application has applied
//!  dispatch.rs  check, record, write
//!  collect.rs   garbage collection by difference of records
//!  keep.rs      restores recorded objects
//! ```
//!
//! Invariants:
//! - An object is recorded before it is written, and only if it may be written.
//! - An object is deleted only if a record of this application names it, no newer record does, and its labels still name
//!   this application.
//! - Nothing is written that the cluster already has.

pub(crate) mod claims;
pub(crate) mod cluster;
pub(crate) mod collect;
pub(crate) mod dispatch;
pub(crate) mod drift;
pub(crate) mod identity;
pub(crate) mod keep;
pub(crate) mod ownership;
pub(crate) mod paths;
pub(crate) mod tracker;
