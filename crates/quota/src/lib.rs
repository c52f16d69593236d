//! What objects count for against the quotas of their namespace.
//!
//! ```text
//!  names.rs      how resources are called
//!  resources.rs  amounts of named resources, and arithmetic on them
//!  scope.rs      which objects a quota is about
//!  evaluator.rs  which resources a kind counts for; what one object counts for
//!  pod.rs, service.rs, claim.rs, device_claim.rs  the kinds that count for more than their number
//! ```
//!
//! Both sides of the API use it: the API server before it admits an object, the controller when it counts
//! again. What always holds: everything here is a function of an object, and of `now` where time decides.

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
