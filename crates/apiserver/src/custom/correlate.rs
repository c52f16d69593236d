//! Correlates parts of a new object with parts of the old one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::props::Props;

/// Returns the old value of a field.
pub(super) fn field<'v>(name: &str, old: Option<&'v Value>) -> Option<&'v Value> {
    old?.as_object()?.get(name)
}

/// The old items of a list by their map keys, so that each new one is found without a scan. Lists other than maps have
/// no old items.
pub(super) struct Items<'s, 'v> {
    keys: &'s [String],
    by_key: BTreeMap<String, &'v Value>,
}

impl<'s, 'v> Items<'s, 'v> {
    pub(super) fn of(list: &'s Props, old: Option<&'v Value>) -> Self {
        let mut items = Self { keys: &list.list_map_keys, by_key: BTreeMap::new() };
        let old = old.filter(|_| list.list_type.as_deref() == Some("map")).and_then(Value::as_array);
        for item in old.into_iter().flatten() {
            items.by_key.entry(items.key(item)).or_insert(item);
        }
        items
    }

    /// Returns the old item with the keys of a new one.
    pub(super) fn find(&self, item: &Value) -> Option<&'v Value> {
        if self.by_key.is_empty() { None } else { self.by_key.get(&self.key(item)).copied() }
    }

    /// Joins the values of the keys. JSON text contains no NUL and is never empty, unlike an absent key.
    fn key(&self, item: &Value) -> String {
        let values = self.keys.iter().map(|key| item.get(key).map(Value::to_string).unwrap_or_default());
        values.collect::<Vec<_>>().join("\0")
    }
}

/// Whether a value is unchanged, as far as the schema can tell: the order of map lists does not matter, and a field
/// without a schema has no old value to compare with.
pub(super) fn is_same(schema: &Props, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(fields), Value::Object(before)) => {
            let is_kept = |(name, value): (&String, &Value)| {
                let old = before.get(name).zip(schema.field(name));
                old.is_some_and(|(old, schema)| is_same(schema, value, old))
            };
            fields.len() == before.len() && fields.iter().all(is_kept)
        }
        (Value::Array(items), Value::Array(before)) => {
            let Some(below) = schema.item().filter(|_| schema.list_type.as_deref() == Some("map")) else {
                return new == old;
            };
            let old = Items::of(schema, Some(old));
            let is_kept = |value: &Value| old.find(value).is_some_and(|old| is_same(below, value, old));
            items.len() == before.len() && items.iter().all(is_kept)
        }
        _ => new == old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equality_depends_on_the_schema() {
        let schema = Props::parse(&json!({"properties": {
            "m": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                  "items": {"properties": {"k": {"type": "string"}, "v": {"type": "string"}}}},
            "l": {"items": {"type": "string"}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
        }}));
        let schema = schema.unwrap();
        let check = |new: Value, old: Value, expected| {
            assert_eq!(is_same(&schema, &new, &old), expected, "{new} after {old}");
        };
        check(json!({"m": [{"k": "a"}, {"k": "b"}]}), json!({"m": [{"k": "b"}, {"k": "a"}]}), true);
        check(json!({"m": [{"k": "a", "v": "1"}]}), json!({"m": [{"k": "a"}]}), false);
        check(json!({"m": [{"k": "a"}]}), json!({"m": [{"k": "b"}]}), false);
        check(json!({"l": ["a", "b"]}), json!({"l": ["b", "a"]}), false);
        check(json!({"l": ["a"]}), json!({"l": ["a"]}), true);
        check(json!({"any": {"x": 1}}), json!({"any": {"x": 1}}), false);
        check(json!({"any": 1}), json!({"any": 1}), true);
    }
}
