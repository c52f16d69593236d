//! Common code of the kinds that create pods from a template: Deployments, the sets, Jobs.

use serde_json::Value;

use super::pod::template;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::validation::{immutable, nonnegative, nonnegative_field, words};

/// Drops the fields of disabled features from a workload's template before it is written.
pub(super) fn drop_disabled(workload: &mut Value) {
    template::drop_disabled(workload.object_mut("spec"));
}

/// Formats the ready and desired replicas.
pub(super) fn ready(workload: &Value) -> Value {
    format!("{}/{}", workload.at("status").count("readyReplicas"), workload.at("spec").count("replicas"))
        .into()
}

/// Checks that a workload's selector does not change.
pub(super) fn keep_selector(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    immutable(new.at("spec").at("selector"), old.at("spec").at("selector"), &path.child("selector"), errors);
}

/// Checks that the counters in a status are not negative.
pub(super) fn check_counts(status: &Value, counts: &[&str], errors: &mut Errors) {
    let path = Path::root("status");
    for count in counts {
        nonnegative_field(status, count, &path, errors);
    }
}

/// Checks that no subset of the replicas exceeds their total.
pub(super) fn check_parts(status: &Value, parts: &[&str], errors: &mut Errors) {
    let path = Path::root("status");
    for part in parts {
        if status.count(part) > status.count("replicas") {
            errors.invalid(&path.child(part), status.count(part), "cannot be greater than status.replicas");
        }
    }
}

/// Checks that available replicas do not exceed ready ones; the kinds differ in the message.
pub(super) fn check_available(status: &Value, ready: &str, errors: &mut Errors) {
    let available = status.count("availableReplicas");
    if available > status.count("readyReplicas") {
        let detail = format!("cannot be greater than {ready}");
        errors.invalid(&Path::root("status").child("availableReplicas"), available, detail);
    }
}

/// Checks that the collision count does not decrease, since names are derived from it.
pub(super) fn check_collisions(status: &Value, old: &Value, errors: &mut Errors) {
    let collisions = status.int("collisionCount");
    if old.int("collisionCount").is_some_and(|old| collisions.is_none_or(|new| new < old)) {
        let path = Path::root("status");
        errors.invalid(&path.child("collisionCount"), collisions.unwrap_or(0), "cannot be decremented");
    }
}

/// Validates a number or a percentage.
pub(super) fn check_int_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            for complaint in words::percent(text) {
                errors.invalid(path, text.as_str(), complaint);
            }
        }
        number => nonnegative(number.as_i64().unwrap_or(0), path, errors),
    }
}

/// Checks that a percentage does not exceed 100%.
pub(super) fn check_at_most_all(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let percent = value.as_str().and_then(words::percent_value);
    if percent.is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// Returns the number or percentage; zero if it is neither.
pub(super) fn int_or_percent(value: &Value) -> i64 {
    match value {
        Value::String(text) => words::percent_value(text).or_else(|| text.parse().ok()).unwrap_or(0),
        number => number.as_i64().unwrap_or(0),
    }
}

/// Drops the count of terminating replicas if the feature is disabled, unless already present.
pub(super) fn drop_terminating_replicas(new: &mut Value, old: &Value) {
    if !old.at("status").has("terminatingReplicas")
        && let Some(status) = new.at_mut("status")
    {
        status.unset("terminatingReplicas");
    }
}

/// Validates the counters that ReplicaSets and ReplicationControllers share, and others.
pub(super) fn check_labelled_replicas(status: &Value, more: &[&str], errors: &mut Errors) {
    let counts =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    check_counts(status, &counts, errors);
    check_counts(status, more, errors);
    check_parts(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], errors);
    check_available(status, "readyReplicas", errors);
}
