//! Label selectors in objects: formatting and matching.

use serde_json::{Map, Value};

use crate::json::Json;

/// Formats a selector: `app=web,tier in (a,b)`; empty if absent.
pub fn shown(selector: &Value) -> String {
    let mut requirements: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.map("matchLabels").into_iter().flatten() {
        requirements.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.list("matchExpressions") {
        let key = expression.text("key");
        let mut values: Vec<&str> = expression.list("values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression.text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        requirements.push((key, text));
    }
    requirements.sort_by_key(|(key, _)| *key);
    requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Formats labels: `a=b,c=d`.
pub fn shown_labels(labels: Option<&Map<String, Value>>) -> String {
    let pairs = labels.into_iter().flatten();
    pairs
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

/// Whether a selector has no requirements.
pub fn is_empty(selector: &Value) -> bool {
    selector.map("matchLabels").is_none_or(Map::is_empty) && selector.list("matchExpressions").is_empty()
}

/// Whether a valid selector matches these labels.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.map("matchLabels").into_iter().flatten();
    wanted.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.list("matchExpressions").iter().all(|expression| holds(expression, labels))
}

fn holds(expression: &Value, labels: &Value) -> bool {
    let value = labels.get(expression.text("key"));
    let listed = value.is_some_and(|value| expression.list("values").contains(value));
    match expression.text("operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        _ => value.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_shown_by_key() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
            {"key": "e", "operator": "NotIn", "values": ["z"]},
        ]});
        assert_eq!(shown(&selector), "a in (x,y),b=1,c,!d,e notin (z)");
        assert_eq!(shown(&Value::Null), "");
    }

    #[test]
    fn every_requirement_must_hold() {
        let selector = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
            {"key": "b", "operator": "NotIn", "values": ["x"]}]});
        assert!(matches(&selector, &json!({"a": "1"})));
        assert!(!matches(&selector, &json!({"a": "1", "b": "x"})));
        assert!(!matches(&selector, &json!({"b": "y"})));
    }
}
