//! Validates where a pod may run: affinity, tolerations, spread constraints, gates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Rules;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;
use crate::validation::labels::{self, Values, node_selector, node_selector_term};
use crate::validation::{Seen, add_invalid, dns_label, optional_choice, positive, qualified_name};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check_affinity(affinity: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    if affinity.is_null() {
        return;
    }
    check_node_affinity(affinity.at("nodeAffinity"), rules, &path.child("nodeAffinity"), errors);
    for kind in ["podAffinity", "podAntiAffinity"] {
        check_pod_affinity(affinity.at(kind), rules.affinity_values, &path.child(kind), errors);
    }
}

fn check_node_affinity(affinity: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    if affinity.has(REQUIRED) {
        node_selector(affinity.at(REQUIRED), rules.node_affinity_values, &path.child(REQUIRED), errors);
    }
    let path = path.child(PREFERRED);
    for (index, term) in affinity.list(PREFERRED).iter().enumerate() {
        let path = path.index(index);
        check_weight(term, &path, errors);
        node_selector_term(term.at("preference"), Values::Unchecked, &path.child("preference"), errors);
    }
}

fn check_pod_affinity(affinity: &Value, values: Values, path: &Path<'_>, errors: &mut Errors) {
    let required = path.child(REQUIRED);
    for (index, term) in affinity.list(REQUIRED).iter().enumerate() {
        check_pod_term(term, values, &required.index(index), errors);
    }
    let preferred = path.child(PREFERRED);
    for (index, weighted) in affinity.list(PREFERRED).iter().enumerate() {
        let path = preferred.index(index);
        check_weight(weighted, &path, errors);
        check_pod_term(weighted.at("podAffinityTerm"), values, &path.child("podAffinityTerm"), errors);
    }
}

fn check_weight(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = term.count("weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn check_pod_term(term: &Value, values: Values, path: &Path<'_>, errors: &mut Errors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        labels::selector(term.at(selector), values, &path.child(selector), errors);
    }
    for name in term.list("namespaces").iter().filter_map(Value::as_str) {
        dns_label(name, &path.child("namespace"), errors);
    }
    check_label_keys(term, path, errors);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    qualified_name(key, &path.child("topologyKey"), errors);
}

/// Validates label keys, whose values come from the pod: they must not also be in the selector.
pub(super) fn check_label_keys(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector = term.at("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = term.list(field);
        let path = path.child(field);
        if !keys.is_empty() && selector.is_null() {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            qualified_name(key, &path.index(index), errors);
        }
    }
    let match_keys: Vec<&str> = term.list("matchLabelKeys").iter().filter_map(Value::as_str).collect();
    // For a duplicate key, the last index.
    let places: BTreeMap<&str, usize> =
        match_keys.iter().enumerate().map(|(index, key)| (*key, index)).collect();
    // The requirement generated from a key is already there; a second one is the client's.
    let mut seen = Seen::new();
    for key in selector.map("matchLabels").into_iter().flat_map(|labels| labels.keys()) {
        seen.again(key.as_str());
    }
    for expression in selector.list("matchExpressions") {
        let key = expression.text("key");
        let again = seen.again(key);
        if let Some(index) = places.get(key).filter(|_| again) {
            errors.invalid(&path.index(*index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
    let path = path.child("matchLabelKeys");
    let mismatch_keys = term.list("mismatchLabelKeys").iter().filter_map(Value::as_str);
    let mismatch_keys: BTreeSet<&str> = mismatch_keys.collect();
    for (index, key) in match_keys.iter().enumerate() {
        if mismatch_keys.contains(key) {
            errors.invalid(&path.index(index), *key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// Applies the rule before v1.34: a key must not be in the selector at all.
fn check_label_keys_once(constraint: &Value, path: &Path<'_>, errors: &mut Errors) {
    let keys = constraint.list("matchLabelKeys");
    let selector = constraint.at("labelSelector");
    if keys.is_empty() {
        return;
    }
    if selector.is_null() {
        errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    let expressed = selector.list("matchExpressions").iter().map(|expression| expression.text("key"));
    let expressed: BTreeSet<&str> = expressed.collect();
    for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
        qualified_name(key, &path.index(index), errors);
        if expressed.contains(key) || selector.at("matchLabels").has(key) {
            errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

pub(in crate::kinds) fn check_tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        let operator_path = path.child("operator");
        if !key.is_empty() {
            add_invalid(names::qualified_name(key), key, &path.child("key"), errors);
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&operator_path, operator, detail);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => {
                let complaints = names::label_value(value);
                if !complaints.is_empty() {
                    errors.invalid(&operator_path, value, complaints.join(";"));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                errors.invalid(&operator_path, value, "value must be empty when `operator` is 'Exists'")
            }
            operator => errors.not_supported(&operator_path, operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.not_supported(&path.child("effect"), effect, &EFFECTS);
        }
    }
}

pub(super) fn check_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let readiness = path.child("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        qualified_name(gate.text("conditionType"), &readiness.index(index).child("conditionType"), errors);
    }
    let scheduling = path.child("schedulingGates");
    let mut seen = Seen::new();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        qualified_name(name, &scheduling.index(index), errors);
        if seen.again(name) {
            errors.duplicate(&scheduling.index(index), name);
        }
    }
}

/// Returns the identity of a spread constraint.
fn spread(constraint: &Value) -> (&str, &str) {
    (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"))
}

pub(super) fn check_spread(spec: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    let constraints = spec.list("topologySpreadConstraints");
    let last: BTreeMap<_, usize> =
        constraints.iter().enumerate().map(|(index, constraint)| (spread(constraint), index)).collect();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        positive(constraint.count("maxSkew"), &path.child("maxSkew"), errors);
        let (key, action) = spread(constraint);
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let supported = ["DoNotSchedule", "ScheduleAnyway"];
            errors.not_supported(&path.child("whenUnsatisfiable"), action, &supported);
        }
        // The last of several equal ones is not reported as a duplicate.
        if last.get(&(key, action)) != Some(&index) {
            let pair = format!("{{{key}, {action}}}");
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), pair);
        }
        check_min_domains(constraint, &path.child("minDomains"), errors);
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            optional_choice(constraint, field, &["Honor", "Ignore"], &path, errors);
        }
        match rules.allow_repeated_spread_keys {
            true => check_label_keys_once(constraint, &path.child("matchLabelKeys"), errors),
            false => check_label_keys(constraint, &path, errors),
        }
        if !rules.allow_bad_spread_selectors {
            labels::selector(
                constraint.at("labelSelector"),
                Values::Checked,
                &path.child("labelSelector"),
                errors,
            );
        }
    }
}

fn check_min_domains(constraint: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(domains) = constraint.int("minDomains") else { return };
    positive(domains, path, errors);
    let action = constraint.text("whenUnsatisfiable");
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, domains, detail);
    }
}
