//! Leases.

use serde_json::Value;

use super::{COORDINATION, entry};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::Kind;
use crate::strategy::{Lifecycle, Semantics, Validation};
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("Holder", HOLDER, |lease, _| lease.at("spec").text("holderIdentity").into()),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            create_on_update: true,
            unconditional_update: false,
            ..Semantics::default()
        },
        ..entry(&COORDINATION, "Lease", "leases", Lease)
    }
}

const HOLDER: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";

struct Lease;

impl Lifecycle for Lease {
    fn prepare_for_create(&self, lease: &mut Value) {
        drop_coordination(lease, &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        drop_coordination(new, old);
    }
}

impl Validation for Lease {
    fn validate(&self, lease: &Value) -> Errors {
        let mut errors = Errors::default();
        check_spec(lease.at("spec"), &mut errors);
        errors
    }
}

/// Drops the fields of coordinated leader election, which is disabled, unless already present.
fn drop_coordination(lease: &mut Value, old: &Value) {
    let Some(spec) = lease.at_mut("spec") else { return };
    for field in ["strategy", "preferredHolder"] {
        if !old.at("spec").has(field) {
            spec.unset(field);
        }
    }
}

fn check_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    if let Some(seconds) = spec.int("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(transitions) = spec.int("leaseTransitions").filter(|transitions| *transitions < 0) {
        errors.invalid(&path.child("leaseTransitions"), transitions, "must be greater than or equal to 0");
    }
    let (strategy, holder) = (spec.text("strategy"), spec.text("preferredHolder"));
    if spec.has("strategy") {
        check_strategy(strategy, &path.child("strategy").child("strategy"), errors);
    }
    if !holder.is_empty() && strategy.is_empty() {
        errors.forbidden(&path.child("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

/// Validates a strategy: a built-in one, or one with a domain prefix.
fn check_strategy(strategy: &str, path: &Path<'_>, errors: &mut Errors) {
    match strategy.split_once('/') {
        None if strategy == "OldestEmulationVersion" => {}
        None => errors.not_supported(path, strategy, &["OldestEmulationVersion"]),
        Some(_) => crate::validation::qualified_name(strategy, path, errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn durations_are_positive_and_transitions_not_negative() {
        check::create(&Lease, json!({"spec": {"leaseDurationSeconds": 1, "leaseTransitions": 0}}), &[]);
        check::create(
            &Lease,
            json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
            &["Invalid spec.leaseDurationSeconds", "Invalid spec.leaseTransitions"],
        );
    }
}
