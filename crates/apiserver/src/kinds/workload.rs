//! What the kinds that make pods from a template share: Deployments, the sets, Jobs.

use serde_json::Value;

use super::pod::template;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::validation::{immutable, nonnegative, nonnegative_field, words};

/// Before a workload is written: its template loses the fields of features that are off.
pub(super) fn drop_disabled(workload: &mut Value) {
    template::drop_disabled(workload.object_mut("spec"));
}

/// How many replicas are ready, of how many there should be.
pub(super) fn ready(workload: &Value) -> Value {
    format!("{}/{}", workload.at("status").count("readyReplicas"), workload.at("spec").count("replicas"))
        .into()
}

/// Which pods a workload looks after never changes.
pub(super) fn keep_selector(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    immutable(new.at("spec").at("selector"), old.at("spec").at("selector"), &path.child("selector"), errors);
}

/// The counts of a status are not negative.
pub(super) fn check_counts(status: &Value, counts: &[&str], errors: &mut Errors) {
    let path = Path::root("status");
    for count in counts {
        nonnegative_field(status, count, &path, errors);
    }
}

/// No part of the replicas is more than all of them.
pub(super) fn check_parts(status: &Value, parts: &[&str], errors: &mut Errors) {
    let path = Path::root("status");
    for part in parts {
        if status.count(part) > status.count("replicas") {
            errors.invalid(&path.child(part), status.count(part), "cannot be greater than status.replicas");
        }
    }
}

/// What is available is ready; the kinds differ in how they name what it exceeds.
pub(super) fn check_available(status: &Value, ready: &str, errors: &mut Errors) {
    let available = status.count("availableReplicas");
    if available > status.count("readyReplicas") {
        let detail = format!("cannot be greater than {ready}");
        errors.invalid(&Path::root("status").child("availableReplicas"), available, detail);
    }
}

/// Collisions of hashes are counted up only, for names are made from the count.
pub(super) fn check_collisions(status: &Value, old: &Value, errors: &mut Errors) {
    let collisions = status.int("collisionCount");
    if old.int("collisionCount").is_some_and(|old| collisions.is_none_or(|new| new < old)) {
        let path = Path::root("status");
        errors.invalid(&path.child("collisionCount"), collisions.unwrap_or(0), "cannot be decremented");
    }
}

/// A number of things, or of percent.
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

/// No more than everything.
pub(super) fn check_at_most_all(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let percent = value.as_str().and_then(words::percent_value);
    if percent.is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// The number, of things or percent; what is neither counts as none.
pub(super) fn int_or_percent(value: &Value) -> i64 {
    match value {
        Value::String(text) => words::percent_value(text).or_else(|| text.parse().ok()).unwrap_or(0),
        number => number.as_i64().unwrap_or(0),
    }
}

/// Where terminating replicas are not counted the field stays only where it already is.
pub(super) fn drop_terminating_replicas(new: &mut Value, old: &Value) {
    if !old.at("status").has("terminatingReplicas")
        && let Some(status) = new.at_mut("status")
    {
        status.unset("terminatingReplicas");
    }
}

/// The counts that ReplicaSets and ReplicationControllers have alike, and some more.
pub(super) fn check_labelled_replicas(status: &Value, more: &[&str], errors: &mut Errors) {
    let counts =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    check_counts(status, &counts, errors);
    check_counts(status, more, errors);
    check_parts(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], errors);
    check_available(status, "readyReplicas", errors);
}
