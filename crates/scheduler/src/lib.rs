//! The scheduler: finds a node for every pod that has none.
//!
//! ```text
//!  pods, nodes ──► ledger.rs     what every node holds and has left, assumed bindings included
//!                     │
//!  queue ──► reconcile.rs ──► decide.rs ──► filter.rs   which nodes can take the pod
//!               │                       └─► score.rs    which of them should
//!               ├─► bind
//!               └─► parked.rs   pods that fit nowhere, until something changes that could help
//! ```
//!
//! Watches pods and nodes; writes bindings, the `PodScheduled` condition of pods that fit nowhere, and
//! events. What always holds:
//! - a decision is made under one lock and assumed at once, so two pods never take the same room;
//! - deciding is pure: ledger, pod and a random draw in, node or reasons out;
//! - a pod that fits nowhere costs one status write and is not looked at again until a node or a pod
//!   changes in a way that could help, or five minutes have passed.

mod affinity;
mod decide;
mod demand;
mod filter;
mod ledger;
mod parked;
mod reconcile;
mod score;
mod taint;
mod view;

pub use reconcile::{COMPONENT, runnables};
