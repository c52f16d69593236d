//! Which nodes a pod's selector and node affinity name. Pure.

use std::collections::BTreeMap;

use crate::view::{NodeSelectorTerm, PodSpec, Requirement};

pub(crate) type Labels = BTreeMap<String, String>;

/// Whether a node satisfies a pod's selector and its required affinity.
pub(crate) fn matches_required(spec: &PodSpec, node: &str, labels: &Labels) -> bool {
    let selected = spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = &spec.affinity.node_affinity.required;
    selected
        && required.as_ref().is_none_or(|required| {
            required.node_selector_terms.iter().any(|term| matches_term(term, node, labels))
        })
}

/// The weights of the preferred terms that a node satisfies, together.
pub(crate) fn preferred_weight(spec: &PodSpec, node: &str, labels: &Labels) -> i64 {
    let preferred = spec.affinity.node_affinity.preferred.iter();
    preferred.filter(|term| matches_preference(&term.preference, node, labels)).map(|term| term.weight).sum()
}

/// A required term without requirements matches nothing, a preferred one everything.
fn matches_term(term: &NodeSelectorTerm, node: &str, labels: &Labels) -> bool {
    let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    !empty && matches_preference(term, node, labels)
}

fn matches_preference(term: &NodeSelectorTerm, node: &str, labels: &Labels) -> bool {
    let by_label =
        |requirement: &Requirement| holds(requirement, labels.get(&requirement.key).map(String::as_str));
    let by_field =
        |requirement: &Requirement| requirement.key == "metadata.name" && holds(requirement, Some(node));
    term.match_expressions.iter().all(by_label) && term.match_fields.iter().all(by_field)
}

fn holds(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|wanted| wanted == value);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(requirement, value).is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compare(requirement, value).is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

fn compare(requirement: &Requirement, value: Option<&str>) -> Option<std::cmp::Ordering> {
    let (value, bound): (i64, i64) = (value?.parse().ok()?, requirement.values.first()?.parse().ok()?);
    Some(value.cmp(&bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn required_terms_are_ored_and_their_requirements_anded() {
        let labels: Labels = [("zone".into(), "a".into()), ("cores".into(), "8".into())].into();
        let check = |spec: serde_json::Value, expected: bool| {
            let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(matches_required(&spec, "n1", &labels), expected, "{spec:?}");
        };
        let required = |terms: serde_json::Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}})
        };
        let req = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        check(json!({}), true);
        check(json!({"nodeSelector": {"zone": "a"}}), true);
        check(json!({"nodeSelector": {"zone": "b"}}), false);
        check(required(json!([{"matchExpressions": [req("zone", "In", &["a", "b"])]}])), true);
        check(required(json!([{"matchExpressions": [req("zone", "NotIn", &["a"])]}])), false);
        check(required(json!([{"matchExpressions": [req("gone", "NotIn", &["a"])]}])), true);
        check(
            required(json!([{"matchExpressions": [req("cores", "Gt", &["4"]), req("cores", "Lt", &["8"])]}])),
            false,
        );
        check(
            required(json!([{"matchExpressions": [req("zone", "In", &["b"])]},
                              {"matchFields": [req("metadata.name", "In", &["n1"])]}])),
            true,
        );
        check(required(json!([{}])), false);
    }
}
