//! Validates pod-level resources.

use serde_json::Value;

use super::Rules;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::pod::totals::total;
use crate::kinds::resources::{amount, amounts};
use crate::validation::resources::{self, Requirements};

pub(super) fn check(spec: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    let own = spec.at("resources");
    if own.is_null() {
        return;
    }
    let path = path.child("resources");
    if spec.at("os").text("name") == "windows" {
        return errors.forbidden(&path, "may not be set for a windows pod");
    }
    if own.has("claims") {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    let requirements = Requirements {
        name: resources::pod_name,
        allow_broken_pages: rules.allow_broken_pages,
        claims: spec.list("resourceClaims"),
    };
    requirements.check(own, &path, errors);
    check_sums(spec, own, &path, errors);
    check_container_limits(spec, own, &path, errors);
}

/// Checks that pod-level requests are not less than the total of the containers.
fn check_sums(spec: &Value, own: &Value, path: &Path<'_>, errors: &mut Errors) {
    for list in ["requests", "limits"] {
        let path = path.child(list);
        for (resource, sum) in total(spec, list) {
            if list == "limits" && !resources::is_huge_pages(&resource) {
                continue;
            }
            if let Some(own) = amount(own.at(list), &resource).filter(|own| sum > *own) {
                let detail = format!("must be greater than or equal to aggregate container {list} of {sum}");
                errors.invalid(&path.key(&resource), own.to_string(), detail);
            }
        }
    }
}

/// Checks that no container's limit exceeds the pod's.
fn check_container_limits(spec: &Value, own: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        for (resource, limit) in amounts(container.at("resources").at("limits")) {
            if let Some(own) = amount(own.at("limits"), resource).filter(|own| limit > *own) {
                let path = path.index(index);
                let path = path.key(resource);
                let detail = format!("must be less than or equal to pod limits of {own}");
                errors.invalid(&path.child("limits"), limit.to_string(), detail);
            }
        }
    }
}
