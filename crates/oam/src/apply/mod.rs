//! Objects in the cluster: ownership, writes, records and garbage collection.
//!
//! ```text
//!  cluster.rs   reads and writes objects of any kind; watches the kinds that applications use
//!  identity.rs  which object
//!  drift.rs     whether a live object has what was applied                         (pure)
//!  paths.rs     values at paths such as spec.containers[0].image                  (pure)
//!  managers.rs  who owns which fields of an object                                (pure)
//!  shape.rs     whether a manifest is an object at all                            (pure)
//!  ownership.rs whose object it is, and whether it may be written                 (pure)
//!  tracker.rs   ResourceTrackers: the record of what an application has applied
//!  dispatch.rs  check, record, write
//!  collect.rs   garbage collection by difference of records
//!  keep.rs      restores recorded objects
//!  echoes.rs    events that only show what was just written
//!  replaced.rs  whether a cluster is still the one that a record is about
//! ```
//!
//! Invariants:
//! - An object is recorded before it is written, and only if it may be written.
//! - An object is deleted only if a record of this application names it, no newer record does, and its labels still name
//!   this application.
//! - Objects that already match are not written.
//! - A missing object is created, never applied: if two applications want it, one of them fails.

pub(crate) mod cluster;
pub(crate) mod collect;
pub(crate) mod dispatch;
pub(crate) mod drift;
pub(crate) mod echoes;
pub(crate) mod identity;
pub(crate) mod keep;
mod managers;
pub(crate) mod ownership;
pub(crate) mod paths;
mod replaced;
pub(crate) mod shape;
pub(crate) mod tracker;
