//! OpenAPI version 2 as protobuf, which kubectl reads if no version 3 document has a kind.
//!
//! The messages are gnostic's. Anything without its own field there (defaults, extensions) is written as YAML.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::v2::{Section, SharedParts, Source};
use crate::json::Json;
use crate::schema::protobuf::write::{nested, put_bytes, put_double, put_number};

/// Writes a part's message.
type Write = fn(&mut Vec<u8>, &Value);

/// Writes the document of [`super::v2`]. Holds only one part of it besides the output.
pub(super) fn document(source: &Source<'_>) -> Bytes {
    let mut whole = Vec::new();
    let info = super::info();
    put_bytes(&mut whole, 1, b"2.0");
    nested(&mut whole, 2, |written| {
        put_bytes(written, 1, info.text("title").as_bytes());
        put_bytes(written, 2, info.text("version").as_bytes());
    });
    let mut shared = SharedParts::default();
    for section in Section::ALL {
        let (at, at_part, write): (u64, u64, Write) = match section {
            Section::Paths => (8, 2, path_item),
            Section::Definitions => (9, 1, schema),
            Section::Parameters => (10, 1, parameter),
        };
        nested(&mut whole, at, |parts| {
            source.each(section, &mut shared, &mut |name, part| {
                named(parts, at_part, name, |into| write(into, part))
            });
        });
    }
    nested(&mut whole, 12, |requirement| named(requirement, 1, "BearerToken", |_no_scopes| {}));
    nested(&mut whole, 13, |definitions| security(definitions, &super::security()));
    whole.into()
}

/// Writes a named value.
fn named(into: &mut Vec<u8>, at: u64, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    nested(into, at, |named| {
        put_bytes(named, 1, name.as_bytes());
        nested(named, 2, value);
    });
}

fn path_item(into: &mut Vec<u8>, item: &Value) {
    for (at, method) in (2..).zip(["get", "put", "post", "delete", "options", "head", "patch"]) {
        if let Some(value) = item.get(method) {
            nested(into, at, |into| operation(into, value));
        }
    }
    parameters(into, 9, item);
}

fn operation(into: &mut Vec<u8>, operation: &Value) {
    texts(into, 1, operation.at("tags"));
    put_bytes(into, 3, operation.text("description").as_bytes());
    put_bytes(into, 5, operation.text("operationId").as_bytes());
    texts(into, 6, operation.at("produces"));
    texts(into, 7, operation.at("consumes"));
    parameters(into, 8, operation);
    nested(into, 9, |responses| {
        for (code, response) in operation.at("responses").as_object().into_iter().flatten() {
            named(responses, 1, code, |either| nested(either, 1, |into| self::response(into, response)));
        }
    });
    texts(into, 10, operation.at("schemes"));
    extensions(into, 13, operation);
}

fn response(into: &mut Vec<u8>, response: &Value) {
    put_bytes(into, 1, response.text("description").as_bytes());
    if let Some(value) = response.get("schema") {
        nested(into, 2, |either| nested(either, 1, |into| schema(into, value)));
    }
}

/// Writes parameters and references to them.
fn parameters(into: &mut Vec<u8>, at: u64, of: &Value) {
    for value in of.at("parameters").as_array().into_iter().flatten() {
        nested(into, at, |either| match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => nested(either, 2, |into| put_bytes(into, 1, reference.as_bytes())),
            None => nested(either, 1, |into| parameter(into, value)),
        });
    }
}

fn parameter(into: &mut Vec<u8>, parameter: &Value) {
    let required = u64::from(parameter.at("required").as_bool() == Some(true));
    let put = |into: &mut Vec<u8>, at: u64, name: &str| put_bytes(into, at, parameter.text(name).as_bytes());
    let simple = |into: &mut Vec<u8>, at: u64, at_type: u64, at_unique: u64| {
        nested(into, 2, |either| {
            nested(either, at, |into| {
                put_number(into, 1, required);
                put(into, 2, "in");
                put(into, 3, "description");
                put(into, 4, "name");
                put(into, at_type, "type");
                put_number(into, at_unique, u64::from(parameter.at("uniqueItems").as_bool() == Some(true)));
            });
        });
    };
    match parameter.text("in") {
        "body" => nested(into, 1, |into| {
            put(into, 2, "name");
            put(into, 3, "in");
            put_number(into, 4, required);
            nested(into, 5, |into| schema(into, parameter.at("schema")));
        }),
        "path" => simple(into, 4, 5, 19),
        _ => simple(into, 3, 6, 20),
    }
}

/// Writes anything without its own field.
fn extensions(into: &mut Vec<u8>, at: u64, of: &Value) {
    for (name, value) in of.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        named(into, at, name, |into| any(into, value));
    }
}

/// Writes schemas by name.
fn schemas(into: &mut Vec<u8>, schemas: &Value) {
    for (name, value) in schemas.as_object().into_iter().flatten() {
        named(into, 1, name, |into| schema(into, value));
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
            extension if extension.starts_with("x-") => named(into, 31, extension, |into| any(into, value)),
            plain => self::plain(into, plain, value),
        }
    }
}

/// Writes the string, number and boolean members of a schema.
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
        // Version 2 has no others.
        _ => {}
    }
}

/// Writes one or several strings.
fn texts(into: &mut Vec<u8>, at: u64, value: &Value) {
    let several = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    several.iter().filter_map(Value::as_str).for_each(|text| put_bytes(into, at, text.as_bytes()));
}

fn any(into: &mut Vec<u8>, value: &Value) {
    let text = serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value}\n"));
    put_bytes(into, 2, text.as_bytes());
}

fn security(into: &mut Vec<u8>, definitions: &Value) {
    for (name, definition) in definitions.as_object().into_iter().flatten() {
        named(into, 1, name, |either| {
            nested(either, 2, |key| {
                for (at, field) in (1..).zip(["type", "name", "in", "description"]) {
                    put_bytes(key, at, definition.text(field).as_bytes());
                }
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
        // Properties, required, type and extension, sorted by name.
        expected.extend_from_slice(b"\xca\x01\x0c\x0a\x0a\x0a\x01a\x12\x05\x0a\x03#/b");
        let (properties, rest) = written.split_at(expected.len());
        assert_eq!(properties, expected);
        assert!(rest.starts_with(b"\x9a\x01\x01a\xb2\x01\x08\x0a\x06object\xfa\x01"), "{rest:?}");
        assert!(rest.ends_with(b"\x12\x05\x12\x03[]\n"), "{rest:?}");
    }

    #[test]
    fn fields_without_a_protobuf_field_are_yaml() {
        let mut written = Vec::new();
        any(&mut written, &json!([{"fieldPath": "spec.color"}, {"fieldPath": "spec.size"}]));
        assert_eq!(&written[2..], b"- fieldPath: spec.color\n- fieldPath: spec.size\n");
    }
}
