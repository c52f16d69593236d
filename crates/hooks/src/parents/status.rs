//! The status of a parent.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::apply::same;
use crate::wire::AnsweredCondition;

/// Returns the status in a response, with its conditions. `before` is the current status, whose conditions keep their
/// times.
pub(crate) fn with_conditions(
    mut status: Map<String, Value>,
    answered: &[AnsweredCondition],
    before: &Value,
    generation: i64,
    now: Timestamp,
) -> Map<String, Value> {
    if answered.is_empty() {
        return status;
    }
    let known = before["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    for condition in answered {
        let old = known.iter().find(|known| known["type"] == condition.kind.as_str());
        let since = old.filter(|old| old["status"] == condition.status.as_str());
        let since = since.map(|old| &old["lastTransitionTime"]).filter(|since| since.is_string());
        let reason = if condition.reason.is_empty() { &condition.kind } else { &condition.reason };
        let whole = setpoint::conditions::whole_seconds(now).to_string();
        let new = json!({
            "type": condition.kind, "status": condition.status, "reason": reason,
            "message": condition.message, "observedGeneration": generation,
            "lastTransitionTime": since.cloned().unwrap_or_else(|| whole.into()),
        });
        match conditions.iter_mut().find(|known| known["type"] == condition.kind.as_str()) {
            Some(known) => *known = new,
            None => conditions.push(new),
        }
    }
    status.insert("conditions".into(), conditions.into());
    status
}

/// Returns the merge patch that turns one status into another, or `None` if they are equal. `null` is the same as
/// absent.
pub(crate) fn patch(before: &Value, after: &Map<String, Value>) -> Option<Value> {
    let (before, after) = (without_nulls(before), without_nulls(&Value::Object(after.clone())));
    (!same(&before, &after)).then(|| replacing(&before, after))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        value => kept(value),
    }
}

fn kept(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            set.map(|(name, value)| (name.clone(), kept(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(kept).collect(),
        value => value.clone(),
    }
}

/// Returns all fields of `after`, and `null` for the removed ones.
fn replacing(before: &Value, after: Value) -> Value {
    let (Value::Object(before), Value::Object(mut fields)) = (before, after.clone()) else { return after };
    for (name, old) in before {
        let new = fields.remove(name).unwrap_or(Value::Null);
        fields.insert(name.clone(), replacing(old, new));
    }
    fields.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn a_status_is_replaced_and_not_merged() {
        let check = |before: Value, after: Value, expected: Option<Value>| {
            assert_eq!(patch(&before, &fields(after.clone())), expected, "{before} {after}");
        };
        check(json!(null), json!({}), None);
        check(json!({"a": 1}), json!({"a": 1.0}), None);
        check(json!({"a": 1}), json!({"a": 1, "b": null}), None);
        check(json!({"a": 1, "b": {"c": 1}}), json!({"b": {}}), Some(json!({"a": null, "b": {"c": null}})));
        check(json!({"a": [1]}), json!({"a": [2]}), Some(json!({"a": [2]})));
    }

    #[test]
    fn conditions_keep_the_time_of_their_last_change() {
        let now: Timestamp = "2025-01-02T00:00:00.5Z".parse().expect("a time");
        let before = json!({"conditions": [
            {"type": "A", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"},
            {"type": "B", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"},
        ]});
        let answered = ["A", "B"].map(|kind| AnsweredCondition {
            kind: kind.into(),
            status: if kind == "A" { "True" } else { "False" }.into(),
            reason: String::new(),
            message: "m".into(),
        });
        let status = with_conditions(fields(json!({"n": 1})), &answered, &before, 3, now);
        let times = status["conditions"].as_array().expect("a list").iter();
        let times: Vec<_> = times.map(|condition| condition["lastTransitionTime"].as_str()).collect();
        assert_eq!(times, [Some("2024-01-01T00:00:00Z"), Some("2025-01-02T00:00:00Z")]);
        assert_eq!(status["conditions"][0]["reason"], "A");
    }
}
