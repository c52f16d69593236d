//! Shared by controllers with replicas.
//!
//! ```text
//!  pod.rs          the pod fields that such controllers use
//!  encoded_pod.rs  the encoded fields these are extracted from
//!  update_strategy.rs  RollingUpdate or OnDelete
//!  template.rs     pod templates: kept encoded, compared, hashed, turned into pods
//!  owners.rs       from a dependent to its owner and potential adopters
//!  dependents.rs   from an owner to its dependents and orphans
//!  claims.rs       adoption and release of dependents
//!  pod_control.rs  creates, deletes, adopts and releases pods, with events
//!  on_node.rs      from a node to its pods
//!  disruption_target.rs  the DisruptionTarget condition of pods (pure)
//!  wake.rs         maps pod events to sets
//!  history.rs      the template history of a set
//!  throttle.rs     batches frequent changes of an owner
//!  amount.rs       absolute or percentage amounts (pure)
//!  condition.rs    status conditions (pure)
//!  selector.rs     formats selectors for events (pure)
//!  encoding.rs     encoding details
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
pub(crate) mod pod;
pub(crate) mod pod_control;
pub(crate) mod selector;
pub(crate) mod template;
pub(crate) mod throttle;
pub(crate) mod update_strategy;
pub(crate) mod wake;
