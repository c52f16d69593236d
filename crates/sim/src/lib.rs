//! Deterministic simulation: a whole cluster in one paused, single-threaded runtime.
//!
//! ```text
//!  world.rs    a seeded cluster on a virtual clock; crash and restart of its manager
//!  snapshot.rs  the objects that worlds start with, prepared once for many
//!  faults.rs   the faults, triggered by the n-th write or the n-th event, never by a timer
//!  client.rs   fault injection for API calls
//!  source.rs   fault injection for watches
//!  extensions.rs  webhooks, converters and API servers of a test, and fault injection for their calls
//!  members.rs  other API servers in the same world
//!  link.rs     the link of one replica among several: open, cut, or paused with the replica
//!  trace.rs    everything that happened, in order
//!  graph.rs    the object graph at the end, with random values masked
//!  testing.rs  the same for controller authors: `TestCluster`
//!  permissions.rs  what the author's controllers ask of the API server
//!  manifest.rs  manifests that must fit the code
//!  plan.rs     every write × crash before/after, every event × hidden/stale, then seeded combinations
//! ```
//!
//! Invariants:
//! - The same seed and plan give the same trace, byte for byte.
//! - A crash drops every task of the manager at once, and nothing of the store.
//! - A run with faults must end with the same graph as the run without, and with the same number of creates and
//!   deletes.

mod client;
mod extensions;
mod faults;
mod graph;
mod link;
mod manifest;
mod members;
mod permissions;
mod plan;
mod snapshot;
mod source;
mod testing;
mod trace;
mod world;

pub use faults::{Callee, Fault, Faults, OnCall, OnEvent, OnReply};
pub use graph::{Counts, Graph, History};
pub use link::{Link, Write};
pub use manifest::Manifest;
pub use members::Members;
pub use permissions::Permissions;
pub use plan::{Depth, Ending, Failure, Plan, Report, Scenario, check_all, check_at_depth, check_faults};
pub use setpoint_cluster::{Executed, Kubelets, webhooks};
pub use snapshot::Snapshot;
pub use testing::{Running, TestCluster};
pub use trace::Trace;
pub use world::World;

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
