//! Which nodes a pod's selector and node affinity name. Pure.

use std::collections::BTreeMap;

use setpoint::selector::NodeSelectorTerm;

use crate::view::PodSpec;

pub(crate) type Labels = BTreeMap<String, String>;

/// Whether a node satisfies a pod's selector and its required affinity.
pub(crate) fn matches_required(spec: &PodSpec, node: &str, labels: &Labels) -> bool {
    let selected = spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec.affinity.node_affinity.required.as_ref();
    selected && required.is_none_or(|required| required.matches(node, |key| label(labels, key)))
}

/// The weights of the preferred terms that a node satisfies, together.
pub(crate) fn preferred_weight(spec: &PodSpec, node: &str, labels: &Labels) -> i64 {
    let preferred = spec.affinity.node_affinity.preferred.iter();
    let fits = |term: &NodeSelectorTerm| term.prefers(node, |key| label(labels, key));
    preferred.filter(|term| fits(&term.preference)).map(|term| term.weight).sum()
}

fn label<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.get(key).map(String::as_str)
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
