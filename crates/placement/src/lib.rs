//! Placement rules for pods, daemons and volumes, as in Kubernetes. Pure.
//!
//! ```text
//!  amount.rs         resource amounts of pods and nodes
//!  node_selector.rs  node selectors and node affinity
//!  port.rs           host ports
//!  taint.rs          node taints and tolerations
//! ```

mod amount;
mod node_selector;
mod port;
mod taint;

pub use amount::{Amount, PodLevel, Requests, Resources, demand_of};
pub use node_selector::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredTerm, Requirement};
pub use port::Port;
pub use taint::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration, untolerated};
