//! Applies a schema's defaults.

use serde_json::Value;

use super::meta::{self, Malformed};
use super::props::Props;

/// Sets the default of each field that is absent, or null but not nullable.
pub(super) fn fill(object: &mut Value, schema: &Props) {
    fill_value(object, schema);
    if schema.has_embedded_defaults {
        // A default may contain invalid metadata. `Dropped` removes it, so this cannot fail.
        let _ = meta::normalize_embedded(object, schema, Malformed::Dropped);
    }
}

fn fill_value(value: &mut Value, schema: &Props) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                match fields.get_mut(name) {
                    None => _ = fields.insert(name.clone(), default.clone()),
                    Some(found) => replace_null(found, property),
                }
            }
            for (name, value) in fields {
                match schema.properties.get(name) {
                    Some(property) => fill_value(value, property),
                    None => fill_one(value, schema.additional()),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_one(item, schema.item())),
        _ => {}
    }
}

fn fill_one(value: &mut Value, schema: Option<&Props>) {
    let Some(schema) = schema else { return };
    replace_null(value, schema);
    fill_value(value, schema);
}

fn replace_null(value: &mut Value, schema: &Props) {
    if value.is_null() && !schema.nullable {
        *value = schema.default.clone().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_apply_inside_other_defaults() {
        let schema = Props::parse(&json!({"properties": {
            "a": {"default": {}, "properties": {"b": {"default": 1}}},
            "n": {"default": "d", "nullable": true},
            "m": {"default": "d"},
            "l": {"items": {"properties": {"c": {"default": true}}}}}}));
        let mut object = json!({"n": null, "m": null, "l": [{}]});
        fill(&mut object, &schema.unwrap());
        assert_eq!(object, json!({"a": {"b": 1}, "n": null, "m": "d", "l": [{"c": true}]}));
    }

    #[test]
    fn defaults_add_no_metadata_to_embedded_resources() {
        let name = json!({"properties": {"name": {"default": "a"}, "unknown": {"default": "b"}}});
        let embedded = |metadata: Value| json!({"x-kubernetes-embedded-resource": true, "properties": {"metadata": metadata}});
        let whole = json!({"x-kubernetes-embedded-resource": true,
            "default": {"kind": "A", "metadata": {"name": "a", "unknown": "b"}}});
        let schema = json!({"properties": {
            "fields": embedded(name), "whole": whole,
            "metadata": embedded(json!({"default": {"name": "a", "unknown": "b"}}))}});
        let mut object = json!({"fields": {"metadata": {}}, "metadata": {}});
        fill(&mut object, &Props::parse(&schema).unwrap().for_objects());
        let (a, kind) = (json!({"name": "a"}), json!("A"));
        assert_eq!(
            object,
            json!({"fields": {"metadata": a}, "metadata": {"metadata": a}, "whole": {"kind": kind, "metadata": a}})
        );
    }
}
