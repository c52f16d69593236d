//! The scheduler: finds a node for every pod that has none.
//!
//! ```text
//!  events.rs   ──► ledger.rs     what every node holds and has left, assumed bindings included
//!                     │  alike.rs where pods with the same labels are
//!                     │
//!  queue ──► reconcile.rs ──► decide.rs ──► filter.rs     which nodes can take the pod
//!               │                 │    │       └─► spread.rs, interpod.rs   by where other pods are
//!               │                 │    └──► score.rs      which of them should: allocation, taints, affinity,
//!               │                 │                       spread.rs, interpod.rs, image.rs
//!               │                 └───────► preempt.rs    whom to send away where none can
//!               │                 (volumes/ and devices/: where its volumes and devices are or can be)
//!               ├─► bind its volumes, reserve.rs: its devices, then bind itself
//!               ├─► report.rs   why it fits nowhere; make room for it
//!               └─► parked.rs   pods that fit nowhere, until something changes that could help
//! ```
//!
//! Watches pods, nodes, and what volumes and devices depend on, and reads namespaces, Services, the
//! controllers of replicas and disruption budgets; writes bindings, what volumes are bound to, what devices claims have and which pods use them, the
//! `PodScheduled` condition and the nominated node of pods that fit nowhere, the end of those that have to make
//! room, and events. What always holds:
//! - pods are decided about in the order of their priorities, and pods of one priority in the order they were queued
//!   (what the QueueSort plugin does);
//! - a decision is made under one lock and assumed at once, so two pods never take the same room;
//! - deciding is pure: ledger, pod and random draws in, node or reasons out;
//! - a pod that fits nowhere costs one status write and is not looked at again until something changes that
//!   kept it off a node, or five minutes have passed;
//! - what nobody asks for costs nothing: without affinity or spread constraints no pod looks at others.

mod alike;
mod decide;
mod demand;
mod devices;
mod events;
mod filter;
mod image;
mod interpod;
mod ledger;
mod parked;
mod preempt;
mod reconcile;
mod report;
mod reserve;
mod score;
mod spread;
mod surroundings;
mod view;
mod volumes;

pub use reconcile::{COMPONENT, runnables};

/// What can be set from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether pods are kept off devices whose taints they do not tolerate: what the feature `DRADeviceTaints` turns on.
    pub device_taints: bool,
}
