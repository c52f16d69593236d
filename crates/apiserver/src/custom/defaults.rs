//! Filling in the defaults of a schema.

use serde_json::Value;

use super::props::Props;

/// Fills in what is absent, or null where no null is allowed, and has a default.
pub(super) fn fill(value: &mut Value, schema: &Props) {
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
                    Some(property) => fill(value, property),
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
    fill(value, schema);
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
    fn defaults_fill_in_what_is_absent_also_below_other_defaults() {
        let schema = Props::parse(&json!({"properties": {
            "a": {"default": {}, "properties": {"b": {"default": 1}}},
            "n": {"default": "d", "nullable": true},
            "m": {"default": "d"},
            "l": {"items": {"properties": {"c": {"default": true}}}}}}));
        let mut object = json!({"n": null, "m": null, "l": [{}]});
        fill(&mut object, &schema.unwrap());
        assert_eq!(object, json!({"a": {"b": 1}, "n": null, "m": "d", "l": [{"c": true}]}));
    }
}
