//! What controllers that keep replicas share.
//!
//! ```text
//!  pod.rs          the few facts of a pod that such a controller reads
//!  encoded_pod.rs  the fields that facts of a pod are folded from
//!  update_strategy.rs  rolling, or only when pods are deleted
//!  template.rs     a pod template: kept encoded, compared, hashed, made into pods
//!  owners.rs       from a dependent to its owner, and to those who would adopt it
//!  dependents.rs   from an owner to its dependents, and to orphans
//!  claims.rs       what an owner takes on and lets go
//!  pod_control.rs  creates, deletes, adopts and releases pods, and records it as events
//!  on_node.rs      from a node to the pods on it
//!  disruption_target.rs  how a pod says that it was made to go (pure)
//!  wake.rs         a change of a pod → the sets to look at
//!  history.rs      the templates that a kind has had
//!  pace.rs         how often a busy owner is looked at
//!  amount.rs       a number, or a share of a whole (pure)
//!  condition.rs    the conditions of a status (pure)
//!  selector.rs     selectors as events show them (pure)
//!  encoding.rs     bits of how workloads are encoded
//! ```

pub(crate) mod amount;
pub(crate) mod claims;
pub(crate) mod condition;
pub(crate) mod dependents;
pub(crate) mod disruption_target;
pub(crate) mod encoded_pod;
pub(crate) mod encoding;
pub(crate) mod eviction;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod history;
pub(crate) mod on_node;
pub(crate) mod owners;
pub(crate) mod pace;
pub(crate) mod pod;
pub(crate) mod pod_control;
pub(crate) mod selector;
pub(crate) mod template;
pub(crate) mod update_strategy;
pub(crate) mod wake;
