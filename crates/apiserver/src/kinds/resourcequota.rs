//! ResourceQuotas.

use serde_json::{Value, json};

use super::resources::{amounts, default_list};
use super::{CORE, entry, metadata};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::quantity::Quantity;
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::{IMMUTABLE, resources};

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["quota".into()],
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("Request", REQUEST, |quota, _| usage(quota, |name| !is_limit(name)).into()),
            Column::text("Limit", LIMIT, |quota, _| usage(quota, is_limit).into()),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_status(|| json!({}))
        },
        ..entry(&CORE, "ResourceQuota", "resourcequotas", ResourceQuota)
    }
}

const REQUEST: &str = "Request represents a minimum amount of cpu/memory that a container may consume.";
const LIMIT: &str = "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.";

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

/// Formats the usage: `cpu: 1/2, pods: 0/10`.
fn usage(quota: &Value, is_shown: impl Fn(&str) -> bool) -> String {
    let status = quota.at("status");
    let used = |name: &str| super::resources::amount(status.at("used"), name).unwrap_or(Quantity::ZERO);
    let shown = amounts(status.at("hard")).filter(|(name, _)| is_shown(name));
    shown.map(|(name, hard)| format!("{name}: {}/{hard}", used(name))).collect::<Vec<_>>().join(", ")
}

/// The scopes of a quota.
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

struct ResourceQuota;

impl Lifecycle for ResourceQuota {
    fn default(&self, quota: &mut Value) {
        for (part, list) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
            if let Some(list) = quota.at_mut(part).and_then(|part| part.at_mut(list)) {
                default_list(list);
            }
        }
    }
}

impl Validation for ResourceQuota {
    fn validate(&self, quota: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(quota, &mut errors);
        check_spec(quota.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_spec(new.at("spec"), &mut errors);
        if sorted_scopes(new) != sorted_scopes(old) {
            let path = Path::root("spec");
            errors.invalid(&path.child("scopes"), new.at("spec").at("scopes").clone(), IMMUTABLE);
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let path = Path::root("status");
        for list in ["hard", "used"] {
            check_amounts(new.at("status").at(list), &path.child(list), &mut errors);
        }
        errors
    }
}

fn sorted_scopes(quota: &Value) -> Vec<&str> {
    let mut scopes: Vec<&str> = quota.at("spec").list("scopes").iter().filter_map(Value::as_str).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

fn check_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    check_amounts(spec.at("hard"), &path.child("hard"), errors);
    check_scopes(spec, &path.child("scopes"), errors);
    if spec.has("scopeSelector") {
        check_scope_selector(spec, &path.child("scopeSelector").child("matchExpressions"), errors);
    }
}

fn check_amounts(list: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (resource, amount) in amounts(list) {
        let path = path.key(resource);
        resources::quota_name(resource, &path, errors);
        resources::quantity(resource, &amount, &path, errors);
    }
}

fn check_scopes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = spec.at("scopes");
    let scopes: Vec<&str> = spec.list("scopes").iter().filter_map(Value::as_str).collect();
    for scope in &scopes {
        // Each error shows all scopes.
        if errors.is_full() {
            return;
        }
        if !SCOPES.contains(scope) {
            errors.invalid(path, value.clone(), "unsupported scope");
        }
        check_scope_fits(spec, scope, value, path, errors);
    }
    check_conflicts(&scopes, value, path, errors);
}

/// Checks that a scope and the resources fit: most apply only to pods or only to claims.
fn check_scope_fits(spec: &Value, scope: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !SCOPES.contains(&scope) {
        return;
    }
    for resource in spec.map("hard").into_iter().flat_map(|hard| hard.keys()) {
        if resources::is_standard_for_quota(resource) && !fits(scope, resource) && !errors.is_full() {
            errors.invalid(path, value.clone(), "unsupported scope applied to resource");
        }
    }
}

fn fits(scope: &str, resource: &str) -> bool {
    let computes = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => resource == "pods" || computes.contains(&resource),
        _ => true,
    }
}

fn check_conflicts(scopes: &[&str], value: &Value, path: &Path<'_>, errors: &mut Errors) {
    for pair in CONFLICTS {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path, value.clone(), "conflicting scopes");
        }
    }
}

fn check_scope_selector(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector = spec.at("scopeSelector");
    let shown = declared::of(selector, &declared::SCOPE_SELECTOR);
    let mut scopes = Vec::new();
    for requirement in selector.list("matchExpressions") {
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        check_scope_fits(spec, scope, &shown, path, errors);
        let takes_values =
            !SCOPES.contains(&scope) || matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if !takes_values && operator != "Exists" {
            errors.invalid(&path.child("operator"), operator, EXISTS_ONLY);
        }
        check_operator(requirement, path, errors);
        scopes.push(scope);
    }
    check_conflicts(&scopes, spec.at("scopes"), path, errors);
}

fn check_operator(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = requirement.list("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.required(&path.child("values"), detail);
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(&path.child("values"), values.to_vec(), detail);
        }
        "Exists" | "DoesNotExist" => {}
        operator => errors.invalid(&path.child("operator"), operator, "not a valid selector operator"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn of(spec: Value) -> Value {
        json!({"spec": spec})
    }

    #[test]
    fn quotas_accept_standard_and_qualified_resources() {
        check::create(
            &ResourceQuota,
            of(json!({"hard": {"pods": 1, "count/jobs.batch": "2", "requests.cpu": "1"}})),
            &[],
        );
        check::create(
            &ResourceQuota,
            of(json!({"hard": {"pods": "1.5", "storage": 1, "x": -1}})),
            &[
                "Invalid spec.hard[pods]",
                "Invalid spec.hard[storage]",
                "Invalid spec.hard[x]",
                "Invalid spec.hard[x]",
                "Invalid spec.hard[x]",
            ],
        );
    }

    #[test]
    fn scopes_fit_the_resources_and_each_other() {
        check::create(&ResourceQuota, of(json!({"hard": {"pods": 1}, "scopes": ["BestEffort"]})), &[]);
        check::create(
            &ResourceQuota,
            of(json!({"hard": {"cpu": 1}, "scopes": ["BestEffort", "NotBestEffort", "X"]})),
            &["Invalid spec.scopes", "Invalid spec.scopes", "Invalid spec.scopes"],
        );
        let path = "spec.scopeSelector.matchExpressions";
        check::create(
            &ResourceQuota,
            of(json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": []},
                {"scopeName": "Terminating", "operator": "X"}]}})),
            &[
                &format!("Required {path}.values"),
                &format!("Invalid {path}.operator"),
                &format!("Invalid {path}.operator"),
            ],
        );
        check::update(
            &ResourceQuota,
            of(json!({"scopes": ["Terminating"]})),
            &of(json!({})),
            &["Invalid spec.scopes"],
        );
    }

    #[test]
    fn requests_and_limits_are_shown_apart() {
        let quota = json!({"status": {"hard": {"limits.cpu": "2", "pods": "3"}, "used": {"pods": "1"}}});
        assert_eq!(usage(&quota, |name| !is_limit(name)), "pods: 1/3");
        assert_eq!(usage(&quota, is_limit), "limits.cpu: 0/2");
    }
}
