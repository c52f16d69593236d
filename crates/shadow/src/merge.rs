//! Applies patches.
//!
//! The result is close enough to the API server's to tell which fields a patch changes: lists with merge keys are
//! merged by key, finalizers and pod CIDRs as sets, and all other lists are replaced.

use serde_json::{Map, Value};

use crate::fields::key_of;

/// Lists of strings that are merged as sets.
const SETS: &[&str] = &["finalizers", "podCIDRs"];

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 7386.
    Merge,
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Returns `None` for an unsupported type.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next()?.trim() {
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }

    /// Returns the patched object.
    pub(crate) fn apply(self, object: &Value, patch: &Value) -> Value {
        let mut after = object.clone();
        match self {
            Self::Merge => merge(&mut after, patch),
            Self::Strategic | Self::Apply => merge_by_keys(&mut after, patch),
        }
        after
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    let fields = fields_of(into);
    for (name, value) in patch {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => merge(fields.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

/// Returns the fields of an object. Any other value is replaced by an empty object.
fn fields_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("made an object above"),
    }
}

fn merge_by_keys(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if directive(patch) == Some("replace") {
        *into = Value::Object(patch.iter().filter(|(name, _)| !name.starts_with('$')).map(owned).collect());
        return;
    }
    let fields = fields_of(into);
    for (name, value) in patch {
        if let Some(name) = name.strip_prefix("$deleteFromPrimitiveList/") {
            remove_items(fields.get_mut(name), value);
        } else if name.starts_with('$') {
            // Item order and retained keys are not compared.
        } else if value.is_null() {
            fields.remove(name);
        } else {
            let field = fields.entry(name.clone()).or_insert(Value::Null);
            match (value, key_of(name)) {
                (Value::Array(items), Some(key)) => merge_items(field, key, items),
                (Value::Array(items), None) if SETS.contains(&name.as_str()) => add_items(field, items),
                (value, _) => merge_by_keys(field, value),
            }
        }
    }
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn directive(patch: &Map<String, Value>) -> Option<&str> {
    patch.get("$patch").and_then(Value::as_str)
}

fn items_of(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("made a list above"),
    }
}

fn merge_items(into: &mut Value, key: &str, patch: &[Value]) {
    let items = items_of(into);
    if patch.iter().any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace")) {
        items.clear();
    }
    for item in patch {
        let place = items.iter().position(|known| item.get(key).is_some() && known.get(key) == item.get(key));
        match (item.get("$patch").and_then(Value::as_str), place) {
            (Some("replace"), _) | (Some("delete"), None) => {}
            (Some("delete"), Some(place)) => drop(items.remove(place)),
            (_, Some(place)) => merge_by_keys(&mut items[place], item),
            (_, None) => items.push(item.clone()),
        }
    }
}

fn add_items(into: &mut Value, patch: &[Value]) {
    let items = items_of(into);
    for item in patch {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
}

fn remove_items(from: Option<&mut Value>, patch: &Value) {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (from, patch) {
        items.retain(|item| !gone.contains(item));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_changes_only_its_fields() {
        let check = |kind: PatchType, before: Value, patch: Value, after: Value| {
            assert_eq!(kind.apply(&before, &patch), after, "{kind:?} {patch}");
        };
        let labels = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        check(
            PatchType::Merge,
            labels.clone(),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"n": [1]}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {"n": [1]}}),
        );
        let conditions = |items: Value| json!({"status": {"conditions": items}});
        check(
            PatchType::Strategic,
            conditions(json!([{"type": "A", "x": 1}, {"type": "B"}])),
            conditions(json!([{"type": "A", "y": 2}, {"type": "C"}])),
            conditions(json!([{"type": "A", "x": 1, "y": 2}, {"type": "B"}, {"type": "C"}])),
        );
        check(
            PatchType::Strategic,
            json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}], "finalizers": ["a", "b"]}}),
            json!({"metadata": {
                "ownerReferences": [{"uid": "1", "$patch": "delete"}],
                "$deleteFromPrimitiveList/finalizers": ["a"],
                "$setElementOrder/finalizers": ["b"],
            }}),
            json!({"metadata": {"ownerReferences": [{"uid": "2"}], "finalizers": ["b"]}}),
        );
        check(
            PatchType::Strategic,
            json!({"metadata": {"finalizers": ["a"]}, "spec": {"taints": [1]}}),
            json!({"metadata": {"finalizers": ["b", "a"]}, "spec": {"taints": [2], "podCIDR": null}}),
            json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"taints": [2]}}),
        );
        check(PatchType::Apply, json!({"a": 1}), json!({"b": {"c": 2}}), json!({"a": 1, "b": {"c": 2}}));
    }

    #[test]
    fn a_json_patch_is_not_supported() {
        assert_eq!(PatchType::of("application/json-patch+json"), None);
        assert_eq!(PatchType::of("application/merge-patch+json; charset=utf-8"), Some(PatchType::Merge));
    }
}
