//! SimpleSchema: fields in a short notation, converted to OpenAPI.

use serde_json::{Map, Value, json};

use super::markers;

/// The maximum nesting of type references.
const DEPTH: usize = 32;

/// Converts fields to the schema of an object. `types` are the named types. The error names the field.
pub(super) fn object(fields: &Value, types: &Value) -> Result<Value, String> {
    Builder { types }.fields(fields, "spec", 0)
}

struct Builder<'a> {
    types: &'a Value,
}

impl Builder<'_> {
    fn fields(&self, fields: &Value, path: &str, depth: usize) -> Result<Value, String> {
        if depth > DEPTH {
            return Err(format!("{path}: types refer to each other without end"));
        }
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for (name, field) in fields.as_object().into_iter().flatten() {
            let (schema, is_required) = self.field(field, &format!("{path}.{name}"), depth)?;
            properties.insert(name.clone(), schema);
            if is_required {
                required.push(name.clone());
            }
        }
        let defaulted =
            !properties.is_empty() && properties.values().all(|schema| schema.get("default").is_some());
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if defaulted {
            schema["default"] = json!({});
        }
        Ok(schema)
    }

    fn field(&self, field: &Value, path: &str, depth: usize) -> Result<(Value, bool), String> {
        match field {
            Value::Object(_) => Ok((self.fields(field, path, depth + 1)?, false)),
            Value::String(text) => {
                let (kind, markers) = markers::split(text).map_err(|why| format!("{path}: {why}"))?;
                let mut schema = self.kind(&kind, path, depth)?;
                let mut required = false;
                for (name, value) in &markers {
                    match name.as_str() {
                        "required" => required = value == "true",
                        _ => mark(&mut schema, name, value, path)?,
                    }
                }
                Ok((schema, required))
            }
            other => Err(format!("{path}: {other} is no type")),
        }
    }

    fn kind(&self, kind: &str, path: &str, depth: usize) -> Result<Value, String> {
        if depth > DEPTH {
            return Err(format!("{path}: types refer to each other without end"));
        }
        if let Some(items) = kind.strip_prefix("[]") {
            return Ok(json!({"type": "array", "items": self.kind(items.trim(), path, depth + 1)?}));
        }
        if let Some(values) = kind.strip_prefix("map[string]") {
            return Ok(
                json!({"type": "object", "additionalProperties": self.kind(values.trim(), path, depth + 1)?}),
            );
        }
        match kind {
            "string" | "boolean" => Ok(json!({"type": kind})),
            "integer" => Ok(json!({"type": "integer", "format": "int64"})),
            "float" | "number" => Ok(json!({"type": "number"})),
            "object" => Ok(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
            other => match &self.types[other] {
                Value::Null => Err(format!("{path}: type {other:?} is not known")),
                Value::String(alias) => Ok(self.field(&Value::String(alias.clone()), path, depth + 1)?.0),
                fields => self.fields(fields, path, depth + 1),
            },
        }
    }
}

/// Adds a marker to a schema.
fn mark(schema: &mut Value, name: &str, value: &str, path: &str) -> Result<(), String> {
    let number = || {
        value
            .parse::<serde_json::Number>()
            .map_err(|_| format!("{path}: {name} is {value:?}, expected a number"))
    };
    match name {
        "default" => {
            schema["default"] = default(schema, value)
                .ok_or_else(|| format!("{path}: default {value:?} does not fit to the type"))?
        }
        "description" | "pattern" => schema[name] = value.into(),
        "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems" => {
            schema[name] = number()?.into()
        }
        "enum" => {
            let values =
                value.split(',').map(|one| default(schema, one.trim()).unwrap_or_else(|| one.into()));
            schema["enum"] = values.collect();
        }
        "uniqueItems" if value == "true" => schema["x-kubernetes-list-type"] = "set".into(),
        "uniqueItems" => {}
        "listType" => schema["x-kubernetes-list-type"] = value.into(),
        "listMapKey" => schema["x-kubernetes-list-map-keys"] = value.split(',').collect(),
        "immutable" if value == "true" => rule(schema, "self == oldSelf", "field is immutable"),
        "immutable" => {}
        "validation" => rule(schema, value, "validation failed"),
        other => return Err(format!("{path}: marker {other:?} is not known")),
    }
    Ok(())
}

fn rule(schema: &mut Value, rule: &str, message: &str) {
    let rules = &mut schema["x-kubernetes-validations"];
    if !rules.is_array() {
        *rules = json!([]);
    }
    if let Value::Array(rules) = rules {
        rules.push(json!({"rule": rule, "message": message}));
    }
}

/// Reads a value as the schema's type.
fn default(schema: &Value, text: &str) -> Option<Value> {
    match schema["type"].as_str()? {
        "string" => Some(text.into()),
        kind => serde_json::from_str::<Value>(text).ok().filter(|value| match kind {
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            _ => value.is_object(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_properties_with_their_markers() {
        let fields = json!({"a": "integer | default=2 minimum=1", "b": "[]string | required=true uniqueItems=true",
            "c": {"d": "boolean | default=true"}, "e": "Point"});
        let schema = object(&fields, &json!({"Point": {"x": "integer"}})).unwrap();
        assert_eq!(
            schema["properties"]["a"],
            json!({"type": "integer", "format": "int64", "default": 2, "minimum": 1})
        );
        assert_eq!(schema["properties"]["b"]["x-kubernetes-list-type"], "set");
        assert_eq!(schema["properties"]["c"]["default"], json!({}));
        assert_eq!(schema["properties"]["e"]["properties"]["x"]["type"], "integer");
        assert_eq!(schema["required"], json!(["b"]));
    }

    #[test]
    fn unknown_types_and_endless_ones_are_refused() {
        assert!(object(&json!({"a": "text"}), &Value::Null).unwrap_err().contains("spec.a"));
        assert!(object(&json!({"a": "A"}), &json!({"A": {"b": "A"}})).unwrap_err().contains("without end"));
        assert!(object(&json!({"a": "integer | default=x"}), &Value::Null).is_err());
    }
}
