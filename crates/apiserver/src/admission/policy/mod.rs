//! Admission policies: rules and changes for requests, in CEL.
//!
//! ```text
//!  request ─► source: the policies bound now ─► matching: rules, selectors
//!                                                   │
//!             params: what each binding selects ◄───┘
//!                │
//!             conditions ─► validating: denials, warnings, annotations
//!                      └──► mutating: patches, one after the other
//! ```
//!
//! Invariants:
//! - a policy takes effect with the first request after its write was acknowledged;
//! - an evaluation error rejects the request, unless the failure policy is Ignore;
//! - policies are not evaluated for policies and their bindings, so these can always be repaired, nor for reviews of
//!   tokens and access.

pub(super) mod authorizer;
mod conditions;
mod expression;
pub(super) mod matching;
mod mutating;
mod param_rights;
mod params;
mod source;
mod validating;
mod variables;

pub(super) use expression::{Conditions, OUT_OF_BUDGET};
pub use mutating::MutatingAdmissionPolicy;
pub use param_rights::ParamRights;
pub(crate) use source::Policies;
pub use validating::ValidatingAdmissionPolicy;

use super::Review;
use super::attributes::VersionedAttributes;
use source::Binding;

pub(super) const GROUP: &str = "admissionregistration.k8s.io";
/// Groups that are exempt from policies: their own, and reviews of tokens and access.
const EXEMPT: [&str; 3] = [GROUP, "authentication.k8s.io", "authorization.k8s.io"];

/// Whether policies are evaluated for a request. Includes webhook configurations, which webhooks do not handle.
fn handles(review: &Review<'_>) -> bool {
    let kind = &review.served.kind;
    !EXEMPT.contains(&kind.group.as_str()) || kind.plural.ends_with("webhookconfigurations")
}

/// Whether a binding applies to a request that its policy matches.
fn is_bound(binding: &Binding, about: &VersionedAttributes<'_>) -> Result<bool, String> {
    match binding.resources.is_null() {
        true => Ok(true),
        false => matching::matched(&binding.resources, about).map(|matched| matched.is_some()),
    }
}
