//! The deterministic world: a whole cluster in one paused, single-threaded runtime.
//!
//! ```text
//!  world.rs    a seeded cluster on a virtual clock; crash and restart of its manager
//!  faults.rs   what goes wrong, and when: keyed on the n-th write or the n-th event, never on a timer
//!  client.rs   the fault layer on API calls
//!  source.rs   the fault layer on watches
//!  link.rs     the line of one replica among several: open, cut, or frozen with the replica
//!  trace.rs    everything that happened, in order
//!  graph.rs    the object graph at the end, with what chance decides masked
//!  testing.rs  the same for authors of controllers: `TestCluster`
//!  plan.rs     every write × crash before/after, every event × hidden/stale, then seeded combinations
//! ```
//!
//! What always holds:
//! - the same seed and plan give the same trace, byte for byte;
//! - a crash drops every task of the manager at once and nothing of the store;
//! - a disturbed run must end in the undisturbed run's graph, with as many creates and deletes.

mod client;
mod faults;
mod graph;
mod link;
mod plan;
mod source;
mod testing;
mod trace;
mod world;

pub use faults::{Fault, Faults, OnCall, OnEvent};
pub use graph::{Counts, Graph, History};
pub use link::{Link, Write};
pub use plan::{Ending, Failure, Plan, Report, Scenario, check_all, check_faults, search, undisturbed};
pub use setpoint_cluster::webhooks;
pub use testing::{Running, TestCluster};
pub use trace::Trace;
pub use world::World;

/// The examples of the README are tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
