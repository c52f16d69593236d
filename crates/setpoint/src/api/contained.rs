//! Whether an object already has all fields of a desired one.
//!
//! The API server adds defaults, so the desired fields are a subset of the observed ones: maps may have more entries,
//! and items of lists may have more fields. Other lists must have the same length and order.

use serde_json::{Map, Value};

/// Returns whether `observed` has all fields of `desired`, except for its status. Fields that are `null` are absent.
pub(super) fn is_contained(desired: &Map<String, Value>, observed: &Map<String, Value>) -> bool {
    desired.iter().all(|(name, desired)| match name.as_str() {
        // Items of a list have no kind, and a status is not applied.
        "apiVersion" | "kind" | "status" => true,
        "metadata" => has_metadata(desired, observed.get(name).unwrap_or(&Value::Null)),
        _ => is_part(desired, observed.get(name).unwrap_or(&Value::Null)),
    })
}

fn has_metadata(desired: &Value, observed: &Value) -> bool {
    let fields = desired.as_object().into_iter().flatten();
    fields.into_iter().all(|(name, desired)| match (name.as_str(), desired) {
        ("managedFields", _) => true,
        // Others may add owners and finalizers.
        ("ownerReferences" | "finalizers", Value::Array(desired)) => {
            let observed = observed[name].as_array().map(Vec::as_slice).unwrap_or_default();
            desired.iter().all(|desired| observed.iter().any(|observed| is_part(desired, observed)))
        }
        // No labels or annotations may be left out.
        (_, Value::Object(desired)) if desired.is_empty() => true,
        _ => is_part(desired, &observed[name]),
    })
}

fn is_part(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Null, _) => true,
        (Value::Object(desired), Value::Object(observed)) => {
            let absent = &Value::Null;
            desired.iter().all(|(name, desired)| is_part(desired, observed.get(name).unwrap_or(absent)))
        }
        // An empty list may be left out. An empty object may mean something: `emptyDir: {}`.
        (Value::Array(desired), Value::Null) => desired.is_empty(),
        (Value::Array(desired), Value::Array(observed)) => {
            desired.len() == observed.len()
                && desired.iter().zip(observed).all(|(desired, observed)| is_part(desired, observed))
        }
        (desired, observed) => desired == observed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_fields_of_others_are_no_difference() {
        let check = |desired: Value, observed: Value, expected: bool| {
            let fields = |value: &Value| value.as_object().cloned().expect("an object");
            assert_eq!(
                is_contained(&fields(&desired), &fields(&observed)),
                expected,
                "{desired} in {observed}"
            );
        };
        let port = json!({"spec": {"ports": [{"port": 80}]}});
        check(
            port.clone(),
            json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}], "type": "ClusterIP"}}),
            true,
        );
        check(port.clone(), json!({"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}}), false);
        check(port.clone(), json!({"spec": {"ports": [{"port": 80}, {"port": 81}]}}), false);
        check(port, json!({}), false);
        check(json!({"kind": "A", "status": {"ready": true}}), json!({}), true);
        check(
            json!({"metadata": {"labels": {}}, "spec": {"args": [], "name": null}}),
            json!({"spec": {}}),
            true,
        );
        let volume = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        check(volume, json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}), false);
        check(json!({"spec": {"replicas": 0}}), json!({"spec": {}}), false);
        let owned = |uids: &[&str]| {
            let owners: Vec<Value> = uids.iter().map(|uid| json!({"uid": uid})).collect();
            json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": owners}})
        };
        check(owned(&["a"]), owned(&["b", "a"]), true);
        check(owned(&["a"]), owned(&["b"]), false);
        check(owned(&["a"]), json!({"metadata": {}}), false);
    }
}
