//! The schemas of custom kinds: as in their CRDs, with the fields that every object has.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::json::JsonMut;
use crate::kind::Kind;
use crate::registry::Served;

use super::schemas::{Dialect, META};

/// Returns the schemas of a custom kind and its lists, by name.
pub(super) fn described(dialect: Dialect, kind: &Kind) -> Vec<(String, Value)> {
    let Some(custom) = &kind.custom else { return Vec::new() };
    let written: Value = serde_json::from_str(&custom.written).unwrap_or_default();
    let object = object(dialect, kind, written, custom);
    vec![(kind.schema.clone(), object), (list_name(kind), list(dialect, kind))]
}

/// Returns the schema name of a kind's list.
pub(super) fn list_name(kind: &Kind) -> String {
    match kind.schema.strip_suffix(kind.kind.as_str()) {
        Some(prefix) => format!("{prefix}{}", kind.list_kind()),
        None => format!("{}List", kind.schema),
    }
}

fn object(dialect: Dialect, kind: &Kind, written: Value, custom: &crate::custom::Custom) -> Value {
    let is_open = custom.schema.preserves_unknown();
    let mut schema = match dialect {
        Dialect::V2 if is_open || !written.is_object() => json!({"type": "object"}),
        Dialect::V2 => simplified(written),
        Dialect::V3 => written,
    };
    if !(matches!(dialect, Dialect::V2) && is_open) {
        schema.or_insert("type", "object");
        add_meta(
            dialect,
            &mut schema,
            "ObjectMeta",
            "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        );
    }
    schema.set("x-kubernetes-group-version-kind", json!([gvk(kind, &kind.kind)]));
    if !custom.selectable.is_empty() {
        let fields: Vec<Value> =
            custom.selectable.iter().map(|field| json!({"fieldPath": field.path})).collect();
        schema.set("x-kubernetes-selectable-fields", fields);
    }
    schema
}

fn list(dialect: Dialect, kind: &Kind) -> Value {
    let items = json!({
        "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", kind.plural),
        "type": "array",
        "items": dialect.reference(&kind.schema),
    });
    let mut schema = json!({
        "description": format!("{} is a list of {}", kind.list_kind(), kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {"items": items},
    });
    add_meta(
        dialect,
        &mut schema,
        "ListMeta",
        "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    );
    schema.set("x-kubernetes-group-version-kind", json!([gvk(kind, &kind.list_kind())]));
    schema
}

fn gvk(kind: &Kind, name: &str) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": name})
}

/// Adds the fields that every object and every list has.
fn add_meta(dialect: Dialect, schema: &mut Value, of: &str, description: &str) {
    let properties = schema.object_mut("properties");
    properties.set("apiVersion", json!({"type": "string", "description": "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"}));
    properties.set("kind", json!({"type": "string", "description": "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"}));
    let reference = dialect.reference(&format!("{META}.{of}"));
    let metadata = match dialect {
        Dialect::V2 => {
            let mut reference = reference;
            reference.set("description", description);
            reference
        }
        Dialect::V3 => json!({"description": description, "allOf": [reference]}),
    };
    properties.set("metadata", metadata);
}

/// Reduces a schema to what version 2 supports: without nulls, alternatives and defaults, and with nothing below open
/// values.
fn simplified(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else { return schema };
    for omitted in ["oneOf", "anyOf", "allOf", "not", "default"] {
        fields.remove(omitted);
    }
    let flag = |fields: &Map<String, Value>, name: &str| fields.get(name) == Some(&Value::Bool(true));
    let is_nullable = flag(&fields, "nullable");
    let is_open = flag(&fields, "x-kubernetes-preserve-unknown-fields");
    fields.remove("nullable");
    if is_nullable || is_open {
        for omitted in ["type", "items", "properties", "additionalProperties", "required"] {
            fields.remove(omitted);
        }
    }
    for (name, value) in &mut fields {
        let taken = std::mem::take(value);
        *value = match (name.as_str(), taken) {
            ("items" | "additionalProperties", below @ Value::Object(_)) => simplified(below),
            ("properties", Value::Object(below)) => {
                Value::Object(below.into_iter().map(|(name, below)| (name, simplified(below))).collect())
            }
            (_, other) => other,
        };
    }
    Value::Object(fields)
}

/// Returns the names of the schemas that those of custom kinds refer to.
pub(super) fn roots<'a>(mut kinds: impl Iterator<Item = &'a Arc<Served>>) -> Vec<String> {
    match kinds.any(|served| served.kind.custom.is_some()) {
        true => ["ObjectMeta", "ListMeta"].map(|name| format!("{META}.{name}")).into(),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn version_2_omits_nulls_alternatives_and_defaults() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "nullable": true, "default": "x", "description": "d"},
            "b": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"c": {}}},
            "e": {"type": "string", "anyOf": [{"minLength": 1}]}}});
        let expected = json!({"type": "object", "properties": {
            "a": {"description": "d"}, "b": {"x-kubernetes-preserve-unknown-fields": true}, "e": {"type": "string"}}});
        assert_eq!(simplified(schema), expected);
        assert_eq!(expected.at("properties").at("e").text("type"), "string");
    }
}
