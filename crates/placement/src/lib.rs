//! Which nodes pods, daemons and volumes may be on, as Kubernetes reads it. Pure.
//!
//! ```text
//!  node_selector.rs  node selectors, with a pod's node affinity
//!  taint.rs          taints of nodes, and the tolerations of pods
//! ```

mod node_selector;
mod taint;

pub use node_selector::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredTerm, Requirement};
pub use taint::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration, untolerated};
