//! Node selectors.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use setpoint::Labels;

/// The only field that can select nodes.
const NAME: &str = "metadata.name";

/// The node affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredTerm>,
}

/// Terms of which a node must match at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A preferred term with its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PreferredTerm {
    pub weight: i64,
    pub preference: NodeSelectorTerm,
}

/// Requirements that a node must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<Requirement>,
}

/// A requirement on a label or field. An unknown operator never matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Requirement {
    pub key: Box<str>,
    pub operator: Box<str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Box<str>>,
}

impl NodeAffinity {
    /// Whether a node matches the required affinity.
    pub fn allows(&self, node: &str, labels: &Labels) -> bool {
        self.required.as_ref().is_none_or(|required| required.matches(node, labels))
    }

    /// Returns the sum of weights of the preferred terms that a node matches. An empty preferred term matches every
    /// node.
    pub fn preference(&self, node: &str, labels: &Labels) -> i64 {
        let fulfilled = self.preferred.iter().filter(|term| term.preference.holds(node, labels));
        fulfilled.map(|term| term.weight).sum()
    }
}

impl NodeSelector {
    /// Whether a node matches any of the terms.
    pub fn matches(&self, node: &str, labels: &Labels) -> bool {
        self.node_selector_terms.iter().any(|term| !term.is_empty() && term.holds(node, labels))
    }

    /// Returns the only nodes that can match, if every term names nodes.
    pub fn named_nodes(&self) -> Option<BTreeSet<&str>> {
        let mut all = BTreeSet::new();
        for term in &self.node_selector_terms {
            all.extend(term.named_nodes()?);
        }
        (!self.node_selector_terms.is_empty()).then_some(all)
    }
}

impl NodeSelectorTerm {
    /// An empty required term matches nothing.
    fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    fn holds(&self, node: &str, labels: &Labels) -> bool {
        let by_field = |field: &Requirement| *field.key == *NAME && field.holds(Some(node));
        self.match_expressions.iter().all(|one| one.holds(labels.get(&one.key)))
            && self.match_fields.iter().all(by_field)
    }

    fn named_nodes(&self) -> Option<BTreeSet<&str>> {
        let by_name = self.match_fields.iter().filter(|one| *one.key == *NAME && *one.operator == *"In");
        let sets = by_name.map(|one| one.values.iter().map(|name| &**name).collect::<BTreeSet<_>>());
        sets.reduce(|one, other| one.intersection(&other).copied().collect())
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|wanted| **wanted == *value));
        match &*self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => self.compared(value).is_some_and(Ordering::is_gt),
            "Lt" => self.compared(value).is_some_and(Ordering::is_lt),
            _ => false,
        }
    }

    fn compared(&self, value: Option<&str>) -> Option<Ordering> {
        let (value, bound): (i64, i64) = (value?.parse().ok()?, self.values.first()?.parse().ok()?);
        Some(value.cmp(&bound))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(terms: Value) -> NodeSelector {
        serde_json::from_value(json!({"nodeSelectorTerms": terms})).expect("a selector")
    }

    fn one(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    #[test]
    fn terms_are_ored_and_their_requirements_anded() {
        let labels: Labels = [("zone", "a"), ("cores", "8")].into_iter().collect();
        let check = |terms: Value, expected: bool| {
            assert_eq!(selector(terms.clone()).matches("n1", &labels), expected, "{terms}");
        };
        let label =
            |key, operator, values: &[&str]| json!([{"matchExpressions": [one(key, operator, values)]}]);
        check(json!([]), false);
        check(json!([{}]), false);
        check(label("zone", "In", &["a", "b"]), true);
        check(label("zone", "NotIn", &["a"]), false);
        check(label("gone", "NotIn", &["a"]), true);
        check(label("zone", "Exists", &[]), true);
        check(label("zone", "DoesNotExist", &[]), false);
        check(label("cores", "Gt", &["7"]), true);
        check(label("cores", "Lt", &["8"]), false);
        check(label("zone", "Gt", &["7"]), false);
        check(label("zone", "Near", &["a"]), false);
        check(json!([{"matchExpressions": [one("cores", "Gt", &["4"]), one("cores", "Lt", &["8"])]}]), false);
        let by_name = json!({"matchFields": [one("metadata.name", "In", &["n1"])]});
        check(json!([{"matchExpressions": [one("zone", "In", &["b"])]}, by_name]), true);
        check(json!([{"matchFields": [one("spec.x", "In", &["n1"])]}]), false);
    }

    #[test]
    fn nodes_are_named_where_every_term_names_some() {
        let check = |terms: Value, expected: Option<&[&str]>| {
            let selector = selector(terms);
            let named = selector.named_nodes().map(|names| names.into_iter().collect::<Vec<_>>());
            assert_eq!(named.as_deref(), expected);
        };
        let names = |names: &[&str]| one("metadata.name", "In", names);
        check(json!([{"matchFields": [names(&["a"])]}, {"matchFields": [names(&["b"])]}]), Some(&["a", "b"]));
        check(json!([{"matchFields": [names(&["a", "b"]), names(&["b", "c"])]}]), Some(&["b"]));
        check(json!([{"matchFields": [names(&["a"]), names(&["b"])]}]), Some(&[]));
        check(
            json!([{"matchFields": [names(&["a"])]}, {"matchExpressions": [one("z", "Exists", &[])]}]),
            None,
        );
        check(json!([]), None);
    }

    #[test]
    fn preferred_terms_add_up_and_an_empty_one_is_always_fulfilled() {
        let preferred = json!([
            {"weight": 2, "preference": {"matchExpressions": [one("zone", "In", &["a"])]}},
            {"weight": 3, "preference": {"matchExpressions": [one("zone", "In", &["b"])]}},
            {"weight": 5, "preference": {}},
        ]);
        let affinity: NodeAffinity =
            serde_json::from_value(json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred}))
                .expect("an affinity");
        let zone = |zone| [("zone", zone)].into_iter().collect::<Labels>();
        assert_eq!(["a", "b", "c"].map(|name| affinity.preference("n", &zone(name))), [7, 8, 5]);
    }
}
