//! Which nodes somebody means, by their labels and their names.

use std::cmp::Ordering;

use serde::Deserialize;

/// A selection of nodes as pods and volumes carry it: one of its terms must hold.
///
/// ```
/// let selector: setpoint_volume::NodeSelector = serde_json::from_str(
///     r#"{"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}"#,
/// )?;
/// assert!(selector.matches("node-1", |key| (key == "zone").then_some("a")));
/// assert!(!selector.matches("node-1", |_| None));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The alternatives.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// One alternative: all of its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// What must hold of the node's labels.
    pub match_expressions: Vec<NodeRequirement>,
    /// What must hold of the node's fields; its name is the only one.
    pub match_fields: Vec<NodeRequirement>,
}

/// What must hold of one label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeRequirement {
    /// The label's key, or `metadata.name`.
    pub key: Box<str>,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`; any other holds for no node.
    pub operator: Box<str>,
    /// What it is compared with.
    pub values: Vec<Box<str>>,
}

impl NodeSelector {
    /// Whether a node of this name and these labels is meant.
    pub fn matches<'a>(&self, node: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.node_selector_terms.iter().any(|term| term.requires(node, &label))
    }
}

impl NodeSelectorTerm {
    /// Whether the node has all that the term requires. A term that requires nothing names no node.
    pub fn requires<'a>(&self, node: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !empty && self.prefers(node, label)
    }

    /// Whether the node has all that the term prefers. A term that prefers nothing fits every node.
    pub fn prefers<'a>(&self, node: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let by_field = |field: &NodeRequirement| *field.key == *"metadata.name" && field.holds(Some(node));
        self.match_expressions.iter().all(|one| one.holds(label(&one.key)))
            && self.match_fields.iter().all(by_field)
    }
}

impl NodeRequirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|wanted| **wanted == *value));
        match &*self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => self.compare(value).is_some_and(Ordering::is_gt),
            "Lt" => self.compare(value).is_some_and(Ordering::is_lt),
            _ => false,
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<Ordering> {
        let (value, bound): (i64, i64) = (value?.parse().ok()?, self.values.first()?.parse().ok()?);
        Some(value.cmp(&bound))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn terms_are_ored_and_their_requirements_anded() {
        let label = |key: &str| match key {
            "zone" => Some("a"),
            "cores" => Some("8"),
            _ => None,
        };
        let check = |terms: Value, expected: bool| {
            let selector: NodeSelector =
                serde_json::from_value(json!({"nodeSelectorTerms": terms})).expect("a selector");
            assert_eq!(selector.matches("n1", label), expected, "{selector:?}");
        };
        let one = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        check(json!([]), false);
        check(json!([{}]), false);
        check(json!([{"matchExpressions": [one("zone", "In", &["a", "b"])]}]), true);
        check(json!([{"matchExpressions": [one("zone", "NotIn", &["a"])]}]), false);
        check(json!([{"matchExpressions": [one("gone", "NotIn", &["a"])]}]), true);
        check(json!([{"matchExpressions": [one("zone", "Exists", &[])]}]), true);
        check(json!([{"matchExpressions": [one("zone", "DoesNotExist", &[])]}]), false);
        check(json!([{"matchExpressions": [one("cores", "Gt", &["4"]), one("cores", "Lt", &["8"])]}]), false);
        check(json!([{"matchExpressions": [one("zone", "Gt", &["4"])]}]), false);
        check(json!([{"matchExpressions": [one("zone", "Like", &["a"])]}]), false);
        check(
            json!([{"matchExpressions": [one("zone", "In", &["b"])]},
                   {"matchFields": [one("metadata.name", "In", &["n1"])]}]),
            true,
        );
        check(json!([{"matchFields": [one("metadata.uid", "In", &["n1"])]}]), false);
    }

    #[test]
    fn a_term_without_requirements_names_no_node_and_prefers_all() {
        let term = NodeSelectorTerm::default();
        assert!(!term.requires("n", |_| None) && term.prefers("n", |_| None));
    }
}
