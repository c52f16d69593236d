//! The JSON patch of a defaulted object.
//!
//! The handler's type may not know all fields of the object. So the handler's changes are merged into the object as it
//! was sent, and the patch contains the resulting changes.

use serde_json::{Map, Value, json};

/// Returns the operations that apply the handler's change from `before` to `after` to `sent`.
pub(super) fn patch(sent: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let mut wanted = sent.clone();
    merge(&mut wanted, before, after);
    let mut operations = Vec::new();
    compare("", sent, &wanted, &mut operations);
    operations
}

/// Applies the change from `before` to `after` to `target`. A list whose length changes is replaced as a whole.
fn merge(target: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    if let (Value::Array(items), Value::Array(old), Value::Array(new)) = (&mut *target, before, after)
        && items.len() == old.len()
        && old.len() == new.len()
    {
        let changes = items.iter_mut().zip(old.iter().zip(new));
        return changes.for_each(|(item, (old, new))| merge(item, old, new));
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        *target = after.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    old.keys().filter(|name| !new.contains_key(*name)).for_each(|name| {
        fields.remove(name);
    });
    for (name, value) in new {
        let known = old.get(name).unwrap_or(&Value::Null);
        if known != value {
            merge(fields.entry(name).or_insert(Value::Null), known, value);
        }
    }
}

fn compare(path: &str, from: &Value, to: &Value, operations: &mut Vec<Value>) {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        if from != to {
            operations.push(json!({"op": "replace", "path": path, "value": to}));
        }
        return;
    };
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        operations.push(json!({"op": "remove", "path": pointer(path, name)}));
    }
    for (name, value) in new {
        match old.get(name) {
            Some(known) => compare(&pointer(path, name), known, value, operations),
            None => operations.push(json!({"op": "add", "path": pointer(path, name), "value": value})),
        }
    }
}

/// Appends a name to a JSON pointer (RFC 6901).
fn pointer(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Encodes bytes as in JSON: base64, with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()));
    encoded.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive_and_only_changes_are_sent() {
        let check = |sent: Value, before: Value, after: Value, expected: Value| {
            assert_eq!(Value::from(patch(&sent, &before, &after)), expected);
        };
        let same = json!({"spec": {"a": 1}});
        check(same.clone(), same.clone(), same.clone(), json!([]));
        check(
            json!({"spec": {"a": 1, "unknown": true}}),
            json!({"spec": {"a": 1, "b": null}}),
            json!({"spec": {"a": 2, "b": "x"}}),
            json!([{"op": "replace", "path": "/spec/a", "value": 2}, {"op": "add", "path": "/spec/b", "value": "x"}]),
        );
        check(
            json!({"metadata": {}}),
            json!({"metadata": {}, "spec": {}}),
            json!({"metadata": {"labels": {"a/b": "c"}}, "spec": {"size": 1}}),
            json!([
                {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
                {"op": "add", "path": "/spec", "value": {"size": 1}},
            ]),
        );
        check(
            json!({"list": [{"a": 1, "unknown": true}, {"a": 2}]}),
            json!({"list": [{"a": 1}, {"a": 2}]}),
            json!({"list": [{"a": 1, "b": 3}, {"a": 2}]}),
            json!([{"op": "replace", "path": "/list", "value": [{"a": 1, "b": 3, "unknown": true}, {"a": 2}]}]),
        );
        check(
            json!({"data": {"a~b/c": 1, "d": 2}}),
            json!({"data": {"a~b/c": 1, "d": 2}}),
            json!({"data": {"d": 2}}),
            json!([{"op": "remove", "path": "/data/a~0b~1c"}]),
        );
    }
}
