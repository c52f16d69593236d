//! Whether a live object has what was applied.

use serde_json::Value;

/// Returns whether every value of `applied` is in `live`. What only `live` has does not matter, and empty values may be
/// missing, because API servers leave them out. A value that the server spells differently counts as drift: applying it
/// again changes nothing.
pub(crate) fn has(live: &Value, applied: &Value) -> bool {
    match (applied, live) {
        (Value::Object(applied), Value::Object(live)) => {
            applied.iter().all(|(name, value)| match live.get(name) {
                Some(live) => has(live, value),
                None => is_empty(value),
            })
        }
        (Value::Array(applied), Value::Array(live)) => {
            applied.len() == live.len() && applied.iter().zip(live).all(|(applied, live)| has(live, applied))
        }
        (Value::Number(applied), Value::Number(live)) => applied.as_f64() == live.as_f64(),
        _ => applied == live || (is_empty(applied) && is_empty(live)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_no_drift_and_changes_are() {
        let live = json!({"spec": {"replicas": 2, "l": [{"a": 1, "d": 9}], "e": {}}});
        assert!(has(&live, &json!({"spec": {"replicas": 2, "l": [{"a": 1}], "e": {"medium": ""}}})));
        assert!(!has(&live, &json!({"spec": {"replicas": 3}})));
        assert!(!has(&live, &json!({"spec": {"l": []}})));
        assert!(!has(&live, &json!({"spec": {"x": 1}})));
    }
}
