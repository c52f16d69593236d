//! Validates labels, annotations, and selectors over them.

use serde_json::{Map, Value};

use super::{add_invalid, qualified_name, too_long};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;

/// Maximum total size of annotations in bytes.
const ANNOTATIONS_BYTES: usize = 256 << 10;

/// Validates the labels in a field, or any similar map (a node selector).
pub fn labels(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(field);
    for (key, value) in object.map(field).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        qualified_name(key, &path, errors);
        add_invalid(names::label_value(value), value, &path, errors);
    }
}

/// Validates an object's annotations.
pub fn annotations(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    annotations_at(object, &path.child("annotations"), errors);
}

/// The same with another path in the errors.
pub(crate) fn annotations_at(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in object.map("annotations").into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Case is ignored only here.
        let complaints = match key.bytes().any(|b| b.is_ascii_uppercase()) {
            true => names::qualified_name(&key.to_lowercase()),
            false => names::qualified_name(key),
        };
        add_invalid(complaints, key, path, errors);
    }
    if size > ANNOTATIONS_BYTES {
        too_long(ANNOTATIONS_BYTES, path, errors);
    }
}

/// Whether to check the values in a selector's expressions. If they were not checked in the past, an object with
/// invalid ones may keep them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Values {
    Checked,
    Unchecked,
}

/// Validates an optional label selector.
pub fn selector(selector: &Value, values: Values, path: &Path<'_>, errors: &mut Errors) {
    if selector.is_null() {
        return;
    }
    labels(selector, "matchLabels", path, errors);
    requirements(selector.list("matchExpressions"), values, &path.child("matchExpressions"), errors);
}

/// Validates the expressions of a selector.
pub fn requirements(expressions: &[Value], values: Values, path: &Path<'_>, errors: &mut Errors) {
    for (index, expression) in expressions.iter().enumerate() {
        let path = path.index(index);
        operator(expression, &["In", "NotIn"], &["Exists", "DoesNotExist"], &path, errors);
        key_and_values(expression, values, &path, errors);
    }
}

/// Whether a selector's expressions contain an invalid label value.
pub fn has_bad_values(selector: &Value) -> bool {
    let expressions = selector.list("matchExpressions").iter();
    let mut values = expressions.flat_map(|expression| expression.list("values")).filter_map(Value::as_str);
    values.any(|value| !names::label_value(value).is_empty())
}

/// Validates the operator: those in `with` need values, those in `without` have none.
fn operator(expression: &Value, with: &[&str], without: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (operator, values) = (expression.text("operator"), expression.list("values"));
    if with.contains(&operator) {
        if values.is_empty() {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.required(&path.child("values"), detail);
        }
    } else if without.contains(&operator) {
        if !values.is_empty() {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&path.child("values"), detail);
        }
    } else if matches!(operator, "Gt" | "Lt") && with.contains(&"Gt|Lt") {
        if values.len() != 1 {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.required(&path.child("values"), detail);
        }
    } else {
        errors.invalid(&path.child("operator"), operator, "not a valid selector operator");
    }
}

fn key_and_values(expression: &Value, values: Values, path: &Path<'_>, errors: &mut Errors) {
    qualified_name(expression.text("key"), &path.child("key"), errors);
    if values == Values::Unchecked {
        return;
    }
    let path = path.child("values");
    for (index, value) in expression.list("values").iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        add_invalid(names::label_value(value), value, &path.index(index), errors);
    }
}

/// Validates a node selector: it needs at least one term.
pub fn node_selector(selector: &Value, values: Values, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("nodeSelectorTerms");
    let terms = selector.list("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(term, values, &path.index(index), errors);
    }
}

/// Whether the terms contain an invalid label value.
pub fn node_selector_has_bad_values(selector: &Value) -> bool {
    selector.list("nodeSelectorTerms").iter().any(has_bad_values)
}

pub fn node_selector_term(term: &Value, values: Values, path: &Path<'_>, errors: &mut Errors) {
    let expressions = path.child("matchExpressions");
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        operator(expression, &["In", "NotIn", "Gt|Lt"], &["Exists", "DoesNotExist"], &path, errors);
        key_and_values(expression, values, &path, errors);
    }
    let fields = path.child("matchFields");
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        node_field(requirement, &fields.index(index), errors);
    }
}

/// Validates a field requirement: the only selectable field of a node is its name, with a single value.
fn node_field(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = requirement.list("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.child("values"), detail);
        }
        operator => errors.invalid(&path.child("operator"), operator, "not a valid selector operator"),
    }
    if requirement.text("key") != "metadata.name" {
        errors.invalid(&path.child("key"), requirement.text("key"), "not a valid field selector key");
        return;
    }
    let path = path.child("values");
    for (index, name) in values.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        add_invalid(names::dns_subdomain(name), name, &path.index(index), errors);
    }
}

/// Whether a map has entries.
pub fn is_filled(map: Option<&Map<String, Value>>) -> bool {
    map.is_some_and(|map| !map.is_empty())
}

/// Metadata fields that a template cannot have, in v1.34's order.
const NOT_OF_TEMPLATES: [(&str, &str); 13] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// Validates the metadata of objects created from a template: only labels and annotations are allowed.
pub fn template_metadata(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    annotations(metadata, path, errors);
    labels(metadata, "labels", path, errors);
    for (field, shown) in NOT_OF_TEMPLATES {
        let is_empty = match metadata.at(field) {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0) && field == "generation",
            _ => false,
        };
        if !is_empty {
            errors.forbidden(&path.child(shown), "cannot be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: &[&str]) {
        let mut errors = Errors::default();
        selector(&value, Values::Checked, &Path::root("s"), &mut errors);
        let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, expected, "{value}");
    }

    #[test]
    fn every_part_of_a_selector_is_checked() {
        check(Value::Null, &[]);
        check(
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            &[],
        );
        check(json!({"matchLabels": {"-": "b"}}), &["s.matchLabels"]);
        check(
            json!({"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "Gt", "values": ["1"]},
                {"key": "", "operator": "Exists", "values": ["-"]}]}),
            &[
                "s.matchExpressions[0].values",
                "s.matchExpressions[1].operator",
                "s.matchExpressions[2].values",
                "s.matchExpressions[2].key",
                "s.matchExpressions[2].key",
                "s.matchExpressions[2].values[0]",
            ],
        );
    }

    #[test]
    fn nodes_are_selected_by_labels_and_name() {
        let value = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "B"]}]}]});
        let mut errors = Errors::default();
        node_selector(&value, Values::Checked, &Path::root("n"), &mut errors);
        let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
        let path = "n.nodeSelectorTerms[0].matchFields[0].values";
        assert_eq!(fields, [path, &format!("{path}[1]")]);
    }
}
