//! Quota usage of objects.
//!
//! ```text
//!  names.rs      names of resources
//!  resources.rs  amounts of named resources, and arithmetic on them
//!  scope.rs      which objects a quota covers
//!  evaluator.rs  which resources a kind is counted for; the usage of one object
//!  pod.rs, service.rs, claim.rs, device_claim.rs  kinds with more usage than their count
//! ```
//!
//! Used by the API server at admission and by the controller for recounts. Invariant: everything here is a function of
//! an object, and of `now` where time matters.

mod claim;
mod device_claim;
mod evaluator;
pub mod names;
mod pod;
mod resources;
mod scope;
mod service;

pub use evaluator::{Evaluator, Item, count_name};
pub use pod::{must_specify, pod_limits, pod_requests};
pub use resources::Resources;
pub use scope::{Operator, Scope, Scopes};
