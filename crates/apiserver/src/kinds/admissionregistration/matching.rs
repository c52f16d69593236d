//! Which requests a webhook or a policy matches: resource rules, selectors, conditions.

use serde_json::{Value, json};

use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::names;
use crate::validation::labels::{self, Values};
use crate::validation::{Seen, add_invalid, optional_choice, qualified_name, too_many};

pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// Deletions have no object to change.
const MUTABLE_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const MAX_CONDITIONS: usize = 64;

/// Sets the default scope: both namespaced and cluster-scoped objects.
pub(super) fn default_rules(rules: &mut [Value]) {
    for rule in rules {
        rule.or_insert("scope", "*");
    }
}

/// Sets the default match settings of webhooks and policies.
pub(super) fn default_selection(object: &mut Value) {
    object.or_insert("matchPolicy", "Equivalent");
    object.or_insert("namespaceSelector", json!({}));
    object.or_insert("objectSelector", json!({}));
}

pub(super) fn default_resources(resources: &mut Value) {
    default_selection(resources);
    for field in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources.list_mut(field));
    }
}

/// Validates the resources that a policy or a binding matches.
pub(super) fn check_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !resources.has("matchPolicy") {
        errors.required(&path.child("matchPolicy"), "");
    }
    optional_choice(resources, "matchPolicy", &MATCH_POLICIES, path, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        match resources.has(field) {
            true => labels::selector(resources.at(field), Values::Checked, &path.child(field), errors),
            false => errors.required(&path.child(field), ""),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let path = path.child(field);
        for (index, rule) in resources.list(field).iter().enumerate() {
            let path = path.index(index);
            check_resource_names(rule, &path.child("resourceNames"), errors);
            check_rule(rule, &path, errors);
        }
    }
}

/// Validates that the resources of a mutating policy, or of its binding, are matched for operations that have an object.
pub(super) fn check_mutable(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("resourceRules");
    for rule in resources.list("resourceRules") {
        for operation in texts(rule, "operations").filter(|one| !MUTABLE_OPERATIONS.contains(one)) {
            errors.not_supported(&path.child("operations"), operation, &MUTABLE_OPERATIONS);
        }
    }
}

fn check_resource_names(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::new();
    for (index, name) in texts(rule, "resourceNames").enumerate() {
        add_invalid(names::path_segment(name), name, &path.index(index), errors);
        if seen.again(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    object.list(field).iter().map(|text| text.as_str().unwrap_or_default())
}

/// Checks that a list with `*` has no other entries.
fn check_wildcard(rule: &Value, field: &str, others: &str, path: &Path<'_>, errors: &mut Errors) {
    let list = rule.list(field);
    if list.is_empty() {
        errors.required(&path.child(field), "");
    }
    if list.len() > 1 && list.iter().any(|item| item == "*") {
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.invalid(&path.child(field), list.to_vec(), detail);
    }
}

/// Validates operations and resources.
pub(super) fn check_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_wildcard(rule, "operations", "operations", path, errors);
    let operations = path.child("operations");
    for (index, operation) in texts(rule, "operations").enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.not_supported(&operations.index(index), operation, &OPERATIONS);
        }
    }
    check_wildcard(rule, "apiGroups", "API groups", path, errors);
    check_wildcard(rule, "apiVersions", "API versions", path, errors);
    let versions = path.child("apiVersions");
    for (index, _) in texts(rule, "apiVersions").enumerate().filter(|(_, version)| version.is_empty()) {
        errors.required(&versions.index(index), "");
    }
    check_resource_list(rule, &path.child("resources"), errors);
    optional_choice(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

/// Validates resources and `resource/subresource`; none may also be covered by a wildcard.
fn check_resource_list(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resources = rule.list("resources");
    if resources.is_empty() {
        errors.required(path, "");
    }
    let (mut any_part_of, mut part_of_any) = (Seen::new(), Seen::new());
    let mut has_plain = false;
    for (index, text) in texts(rule, "resources").enumerate() {
        let path = path.index(index);
        if text.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let Some((resource, part)) = text.split_once('/') else {
            // As in v1.34, the last one decides.
            has_plain = text != "*";
            continue;
        };
        if any_part_of.has(&resource) {
            errors.invalid(&path, text, format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if part_of_any.has(&part) {
            errors.invalid(&path, text, format!("if '*/{part}' is present, must not specify {text}"));
        }
        if part == "*" {
            any_part_of.again(resource);
        }
        if resource == "*" {
            part_of_any.again(part);
        }
    }
    let has = |wanted: &str| resources.iter().any(|text| text == wanted);
    if resources.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, resources.to_vec(), detail);
    }
    if has("*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, resources.to_vec(), detail);
    }
}

/// Validates match conditions, whose names must be unique.
pub(super) fn check_conditions(
    object: &Value,
    expression: impl Fn(&str, &Path<'_>, &mut Errors),
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child("matchConditions");
    let conditions = object.list("matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        too_many(conditions.len(), MAX_CONDITIONS, &path, errors);
    }
    let mut seen = Seen::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        match condition.text("expression").trim() {
            "" => errors.required(&path.child("expression"), ""),
            text => expression(text, &path.child("expression"), errors),
        }
        let name = condition.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
            continue;
        }
        qualified_name(name, &path.child("name"), errors);
        if seen.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}
