//! The scheduler: assigns unscheduled pods to nodes.
//!
//! ```text
//!  events.rs   ──► ledger.rs     allocated and free resources per node, assumed bindings included
//!                     │  label_index.rs  index of pods with the same labels
//!                     │
//!  queue ──► reconcile.rs ──► decide.rs ──► filter.rs     which nodes can run the pod
//!               │                 │    │       └─► spread.rs, interpod.rs   constraints on other pods
//!               │                 │    └──► score.rs      which of them is best: allocation, taints, affinity,
//!               │                 │                       spread.rs, interpod.rs, image.rs
//!               │                 └───────► preempt.rs    whom to evict if no node fits
//!               │                 (volumes/ and devices/: where the pod's volumes and devices are available)
//!               ├─► bind volumes, reserve devices (reserve.rs), then bind the pod
//!               ├─► report.rs   report unschedulable pods, preempt
//!               └─► parked.rs   unschedulable pods, until a change could help them
//! ```
//!
//! `assess.rs` explains a decision for tools: every node with the check that rejects a pod there.
//!
//! Watches pods, nodes, and everything volumes and devices depend on. Reads namespaces, Services, replica controllers
//! and disruption budgets. Writes bindings, volume bindings, device allocations and reservations, the `PodScheduled`
//! condition and nominated node of unschedulable pods, deletions of preempted pods, and events.
//!
//! Invariants:
//! - pods are scheduled in priority order, and in queueing order within a priority (like the QueueSort plugin);
//! - a decision is made under one lock and assumed at once, so two pods never take the same space;
//! - deciding is pure: ledger, pod and random draws in, node or reasons out;
//! - an unschedulable pod costs one status write and is not tried again until one of the things that kept it off a node
//!   changes, or five minutes have passed;
//! - unused features cost nothing: without affinity or spread constraints no pod looks at other pods.

mod assess;
mod decide;
mod demand;
mod devices;
mod events;
mod filter;
mod image;
mod interpod;
mod label_index;
mod ledger;
mod listers;
mod parked;
mod preempt;
mod reconcile;
mod report;
mod reserve;
mod score;
mod spread;
mod view;
mod volumes;

pub use assess::{Assessment, Assessor, Inputs, Preemption, Rejection, Shortage};
pub use reconcile::{COMPONENT, runnables};

/// Scheduler settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether device taints are honored (feature gate `DRADeviceTaints`).
    pub device_taints: bool,
}
