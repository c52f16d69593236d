//! Drift detection: whether a live object has the applied fields.

use serde_json::Value;
use setpoint_quantity::Quantity;

/// Maps of quantities: of resources, quotas, volumes and limit ranges.
const QUANTITY_MAPS: &[&str] = &[
    "requests",
    "limits",
    "hard",
    "capacity",
    "podFixed",
    "default",
    "defaultRequest",
    "max",
    "min",
    "maxLimitRequestRatio",
];
/// Fields that are quantities.
const QUANTITIES: &[&str] = &["sizeLimit", "divisor", "averageValue"];

/// Returns whether every value of `applied` is in `live`. Additional fields in `live` are ignored, and empty values may
/// be missing, because API servers omit them. Quantities may be spelled differently, because API servers normalize
/// them. Other normalized values count as drift, which is harmless: applying them again changes nothing.
pub(crate) fn has(live: &Value, applied: &Value) -> bool {
    has_at(live, applied, "", "")
}

/// The same for a field with this name, in a field with this name.
fn has_at(live: &Value, applied: &Value, parent: &str, name: &str) -> bool {
    match (applied, live) {
        (Value::Object(applied), Value::Object(live)) => {
            applied.iter().all(|(field, value)| match live.get(field) {
                Some(live) => has_at(live, value, name, field),
                None => is_empty(value),
            })
        }
        (Value::Array(applied), Value::Array(live)) => {
            applied.len() == live.len()
                && applied.iter().zip(live).all(|(applied, live)| has_at(live, applied, "", ""))
        }
        (Value::Number(applied), Value::Number(live)) => applied.as_f64() == live.as_f64(),
        _ if applied == live || (is_empty(applied) && is_empty(live)) => true,
        _ => {
            let is_quantity = QUANTITY_MAPS.contains(&parent) || QUANTITIES.contains(&name);
            is_quantity && matches!((Quantity::of(applied), Quantity::of(live)), (Ok(a), Ok(b)) if a == b)
        }
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

    #[test]
    fn another_spelling_of_a_quantity_is_no_drift() {
        let of = |cpu: Value, memory: &str| json!({"resources": {"limits": {"cpu": cpu, "memory": memory}}});
        assert!(has(&of(json!("1"), "1Gi"), &of(json!("1000m"), "1024Mi")));
        assert!(has(&of(json!("1"), "1Gi"), &of(json!(1), "1Gi")));
        assert!(!has(&of(json!("1"), "1Gi"), &of(json!("1001m"), "1Gi")));
        assert!(!has(&json!({"env": [{"value": "1"}]}), &json!({"env": [{"value": "1000m"}]})));
        assert!(!has(&json!({"labels": {"a": "1"}}), &json!({"labels": {"a": "1000m"}})));
    }
}
