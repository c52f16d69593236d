//! Whether the match conditions of a policy hold for a request.

use serde_json::Value;

use super::expression::Conditions;
use super::source::Policy;
use crate::admission::attributes::VersionedAttributes;
use crate::auth::aggregate;
use crate::cel::{Val, Variables};
use crate::status::Status;

/// Evaluates match conditions, which do not see the namespace. If some of them fail and none excludes the request, the
/// failure policy decides whether the policy is skipped or the request is rejected (the inner error).
pub(super) async fn hold<C>(
    policy: &Policy<C>,
    conditions: &Conditions,
    about: &VersionedAttributes<'_>,
    values: &Variables,
) -> Result<Result<bool, String>, Status> {
    if conditions.is_empty() {
        return Ok(Ok(true));
    }
    let server = about.review.server;
    let began = server.clock.instant();
    let mut values = values.clone();
    values.insert("namespaceObject", Val::of_json(&Value::Null));
    let outcome = about.resolve_checks(|| conditions.hold(&values)).await?;
    let metrics = server.admission_metrics.policy_conditions(&policy.name, about.operation());
    metrics.evaluated(server.clock.instant() - began);
    Ok(match outcome {
        Ok(holds) => Ok(holds),
        Err(undecided) => {
            metrics.failed(undecided.failed);
            match policy.ignores_failures {
                true => Ok(false),
                false => Err(aggregate(&undecided.failures).unwrap_or_default()),
            }
        }
    })
}
