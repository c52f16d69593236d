//! Label selectors.

mod text;

use serde::Deserialize;

pub use text::SelectorError;

use crate::Labels;

/// A label selector, as in `spec.selector`. An object matches if it meets all requirements.
///
/// ```
/// let selector: setpoint::LabelSelector = serde_json::from_str(
///     r#"{"matchLabels": {"app": "shop"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "api"]}]}"#,
/// )?;
/// assert!(selector.matches(&[("app", "shop"), ("tier", "api")].into_iter().collect()));
/// assert!(!selector.matches(&[("app", "shop")].into_iter().collect()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels and their required values.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
    /// Further requirements.
    #[serde(skip_serializing_if = "<[Requirement]>::is_empty")]
    pub match_expressions: Box<[Requirement]>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Requirement {
    /// The label's key.
    pub key: Box<str>,
    /// How the label is compared with the values.
    pub operator: Operator,
    /// The values. Empty for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "<[Box<str>]>::is_empty")]
    pub values: Box<[Box<str>]>,
}

/// A label selector operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub enum Operator {
    /// The label exists and has one of the values.
    In,
    /// The label is missing, or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl LabelSelector {
    /// Returns whether all requirements are met. An empty selector matches everything.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }

    /// Returns whether there are no requirements.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.iter().any(|wanted| **wanted == *value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(selector: Value, labels: &[(&str, &str)], expected: bool) {
        let decoded: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(decoded.matches(&labels.iter().copied().collect()), expected, "{selector} on {labels:?}");
        assert_eq!(serde_json::to_value(&decoded).unwrap(), selector, "encodes as it was decoded");
    }

    fn one(operator: &str, values: &[&str]) -> Value {
        match values {
            [] => json!({"matchExpressions": [{"key": "a", "operator": operator}]}),
            _ => json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}),
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        check(json!({}), &[], true);
        check(json!({}), &[("a", "1")], true);
        check(json!({"matchLabels": {"a": "1"}}), &[("a", "1"), ("b", "2")], true);
        check(json!({"matchLabels": {"a": "1", "b": "2"}}), &[("a", "1")], false);
        check(one("In", &["1", "2"]), &[("a", "2")], true);
        check(one("In", &["1", "2"]), &[("a", "3")], false);
        check(one("In", &["1", "2"]), &[], false);
        check(one("NotIn", &["1"]), &[("a", "2")], true);
        check(one("NotIn", &["1"]), &[("a", "1")], false);
        check(one("NotIn", &["1"]), &[], true);
        check(one("Exists", &[]), &[("a", "")], true);
        check(one("Exists", &[]), &[("b", "")], false);
        check(one("DoesNotExist", &[]), &[], true);
        check(one("DoesNotExist", &[]), &[("a", "")], false);
    }

    #[test]
    fn an_unknown_operator_is_not_decoded() {
        assert!(serde_json::from_value::<LabelSelector>(one("Near", &["1"])).is_err());
    }
}
