//! OpenAPI version 2 as protobuf, which is how kubectl reads it where a kind is in no document of version 3.
//!
//! The messages are those of gnostic. Whatever has no field of its own there (defaults, extensions) goes as
//! text: JSON is YAML.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::json::Json;
use crate::schema::protobuf::write::{nested, put_bytes, put_double, put_number};

/// A document as [`super::v2`] makes it.
pub(super) fn document(document: &Value) -> Bytes {
    let mut whole = Vec::with_capacity(4 << 20);
    put_bytes(&mut whole, 1, document.text("swagger").as_bytes());
    nested(&mut whole, 2, |info| {
        put_bytes(info, 1, document.at("info").text("title").as_bytes());
        put_bytes(info, 2, document.at("info").text("version").as_bytes());
    });
    nested(&mut whole, 8, |_paths| {});
    nested(&mut whole, 9, |definitions| schemas(definitions, document.at("definitions")));
    nested(&mut whole, 13, |definitions| security(definitions, document.at("securityDefinitions")));
    whole.into()
}

/// Schemas by name.
fn schemas(into: &mut Vec<u8>, schemas: &Value) {
    for (name, value) in schemas.as_object().into_iter().flatten() {
        nested(into, 1, |named| {
            put_bytes(named, 1, name.as_bytes());
            nested(named, 2, |into| schema(into, value));
        });
    }
}

fn schema(into: &mut Vec<u8>, schema: &Value) {
    let empty = Map::new();
    for (name, value) in schema.as_object().unwrap_or(&empty) {
        match name.as_str() {
            "additionalProperties" => nested(into, 21, |either| match value {
                Value::Bool(allowed) => put_number(either, 2, u64::from(*allowed)),
                value => nested(either, 1, |into| self::schema(into, value)),
            }),
            "type" => nested(into, 22, |types| texts(types, 1, value)),
            "items" => nested(into, 23, |items| nested(items, 1, |into| self::schema(into, value))),
            "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    nested(into, 24, |into| self::schema(into, part));
                }
            }
            "properties" => nested(into, 25, |properties| schemas(properties, value)),
            "required" => texts(into, 19, value),
            "enum" => {
                for value in value.as_array().into_iter().flatten() {
                    nested(into, 20, |into| any(into, value));
                }
            }
            "default" => nested(into, 5, |into| any(into, value)),
            "example" => nested(into, 30, |into| any(into, value)),
            extension if extension.starts_with("x-") => nested(into, 31, |named| {
                put_bytes(named, 1, extension.as_bytes());
                nested(named, 2, |into| any(into, value));
            }),
            plain => self::plain(into, plain, value),
        }
    }
}

/// The members of a schema that are text, numbers, or yes and no.
fn plain(into: &mut Vec<u8>, name: &str, value: &Value) {
    let text = ["$ref", "format", "title", "description"];
    let number = |at: u64, into: &mut Vec<u8>| put_double(into, at, value.as_f64().unwrap_or_default());
    let count = |at: u64, into: &mut Vec<u8>| put_number(into, at, value.as_u64().unwrap_or_default());
    let flag = |at: u64, into: &mut Vec<u8>| put_number(into, at, u64::from(value.as_bool() == Some(true)));
    match name {
        name if text.contains(&name) => {
            let at = text.iter().position(|text| *text == name).unwrap_or_default() as u64 + 1;
            put_bytes(into, at, value.as_str().unwrap_or_default().as_bytes());
        }
        "multipleOf" => number(6, into),
        "maximum" => number(7, into),
        "exclusiveMaximum" => flag(8, into),
        "minimum" => number(9, into),
        "exclusiveMinimum" => flag(10, into),
        "maxLength" => count(11, into),
        "minLength" => count(12, into),
        "pattern" => put_bytes(into, 13, value.as_str().unwrap_or_default().as_bytes()),
        "maxItems" => count(14, into),
        "minItems" => count(15, into),
        "uniqueItems" => flag(16, into),
        "maxProperties" => count(17, into),
        "minProperties" => count(18, into),
        "readOnly" => flag(27, into),
        // Version 2 has no more.
        _ => {}
    }
}

/// One text, or several.
fn texts(into: &mut Vec<u8>, at: u64, value: &Value) {
    let several = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    several.iter().filter_map(Value::as_str).for_each(|text| put_bytes(into, at, text.as_bytes()));
}

fn any(into: &mut Vec<u8>, value: &Value) {
    put_bytes(into, 2, format!("{value}\n").as_bytes());
}

fn security(into: &mut Vec<u8>, definitions: &Value) {
    for (name, definition) in definitions.as_object().into_iter().flatten() {
        nested(into, 1, |named| {
            put_bytes(named, 1, name.as_bytes());
            nested(named, 2, |either| {
                nested(either, 2, |key| {
                    for (at, field) in (1..).zip(["type", "name", "in", "description"]) {
                        put_bytes(key, at, definition.text(field).as_bytes());
                    }
                });
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_written_as_gnostic_reads_it() {
        let mut written = Vec::new();
        let value = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/b"}},
            "required": ["a"],
            "x-kubernetes-group-version-kind": [],
        });
        schema(&mut written, &value);
        let mut expected = Vec::new();
        // Properties, required, type and extension, in the order of their names.
        expected.extend_from_slice(b"\xca\x01\x0c\x0a\x0a\x0a\x01a\x12\x05\x0a\x03#/b");
        let (properties, rest) = written.split_at(expected.len());
        assert_eq!(properties, expected);
        assert!(rest.starts_with(b"\x9a\x01\x01a\xb2\x01\x08\x0a\x06object\xfa\x01"), "{rest:?}");
        assert!(rest.ends_with(b"\x12\x05\x12\x03[]\n"), "{rest:?}");
    }
}
