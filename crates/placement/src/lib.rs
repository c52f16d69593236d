//! Which nodes pods, daemons and volumes may be on, as Kubernetes reads it. Pure.
//!
//! ```text
//!  amount.rs         how much pods ask for and nodes have
//!  node_selector.rs  node selectors, with a pod's node affinity
//!  port.rs           ports of the node itself
//!  taint.rs          taints of nodes, and the tolerations of pods
//! ```

mod amount;
mod node_selector;
mod port;
mod taint;

pub use amount::{Amount, AsAWhole, Requests, Resources, demand_of};
pub use node_selector::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredTerm, Requirement};
pub use port::Port;
pub use taint::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration, untolerated};
