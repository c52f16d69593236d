//! Schemas as OpenAPI v3.

use serde_json::{Map, Value as Json, json};

use crate::introspect::Schema;
use crate::value::Kind;

/// Returns the OpenAPI schema.
pub(crate) fn schema(schema: &Schema) -> Json {
    let mut object = Map::new();
    if let Some(usage) = schema.marker("usage") {
        object.insert("description".to_owned(), usage.into());
    }
    if let Some(default) = schema.default.as_ref().filter(|_| schema.options.len() != 1) {
        object.insert("default".to_owned(), default.clone());
    }
    if !schema.alternatives.is_empty() {
        let alternatives: Vec<Json> = schema.alternatives.iter().map(self::schema).collect();
        object.insert("oneOf".to_owned(), alternatives.into());
        return Json::Object(object);
    }
    types(schema, &mut object);
    if !schema.options.is_empty() {
        object.insert("enum".to_owned(), schema.options.clone().into());
    }
    limits(schema, &mut object);
    if schema.kind == Kind::STRUCT {
        properties(schema, &mut object);
    }
    if let Some(items) = &schema.items {
        object.insert("items".to_owned(), self::schema(items));
    } else if schema.kind == Kind::LIST {
        object.insert("items".to_owned(), json!({}));
    }
    Json::Object(object)
}

fn types(schema: &Schema, object: &mut Map<String, Json>) {
    let names = [
        (Kind::BOOL, "boolean"),
        (Kind::NUMBER, "number"),
        (Kind::INT, "integer"),
        (Kind::FLOAT, "number"),
        (Kind::STRING, "string"),
        (Kind::BYTES, "string"),
        (Kind::STRUCT, "object"),
        (Kind::LIST, "array"),
    ];
    let nullable = schema.kind.contains(Kind::NULL) && schema.kind != Kind::NULL && schema.kind != Kind::ANY;
    let kind = schema.kind;
    let found: Vec<&str> = names
        .iter()
        .filter(|(one, _)| kind == *one || (nullable && kind == one.or(Kind::NULL)))
        .map(|(_, name)| *name)
        .collect();
    if let [name] = found.as_slice() {
        object.insert("type".to_owned(), (*name).into());
    }
    if kind == Kind::BYTES {
        object.insert("format".to_owned(), "byte".into());
    }
    if nullable {
        object.insert("nullable".to_owned(), true.into());
    }
}

fn limits(schema: &Schema, object: &mut Map<String, Json>) {
    let bounds =
        [("minimum", "exclusiveMinimum", &schema.minimum), ("maximum", "exclusiveMaximum", &schema.maximum)];
    for (name, exclusive, bound) in bounds {
        let Some((value, excluded)) = bound.as_ref().filter(|(value, _)| value.is_number()) else { continue };
        object.insert(name.to_owned(), value.clone());
        if *excluded {
            object.insert(exclusive.to_owned(), true.into());
        }
    }
    match schema.patterns.as_slice() {
        [] => {}
        [pattern] => {
            object.insert("pattern".to_owned(), pattern.as_str().into());
        }
        several => {
            let all: Vec<Json> = several.iter().map(|pattern| json!({"pattern": pattern})).collect();
            object.insert("allOf".to_owned(), all.into());
        }
    }
}

fn properties(schema: &Schema, object: &mut Map<String, Json>) {
    if !schema.fields.is_empty() {
        let fields = schema.fields.iter().map(|field| (field.name.clone(), self::schema(&field.schema)));
        object.insert("properties".to_owned(), Json::Object(fields.collect()));
    }
    let required: Vec<Json> =
        schema.fields.iter().filter(|field| field.required).map(|field| field.name.as_str().into()).collect();
    if !required.is_empty() {
        object.insert("required".to_owned(), required.into());
    }
    if let Some(others) = &schema.others {
        object.insert("additionalProperties".to_owned(), self::schema(others));
    } else if schema.closed {
        object.insert("additionalProperties".to_owned(), false.into());
    }
}
