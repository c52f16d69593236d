//! Encodes objects as protobuf, the inverse of this module's decoder.
//!
//! Fields that are unset in JSON are not written; readers take them as zero.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::numbers::{self, Member, Message};
use super::{CUSTOM, MAGIC};
use crate::schema::{Scalar, Schema, Shape, Struct, Table, TypeId};

/// The error for a type without a protobuf form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoForm;

/// A field that is wrapped in a message although it is a plain list in JSON.
const LIST_IN_A_MESSAGE: (&str, &str) = ("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource", "verbs");

/// Fields that are text such as `15s` in JSON and a message with a number of nanoseconds in protobuf.
const DURATIONS: [(&str, &str); 2] = [
    ("io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics", "window"),
    ("io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics", "window"),
];

/// Encodes an object in its envelope.
pub(crate) fn document(
    schema: &Schema,
    api_version: &str,
    kind: &str,
    object: &Value,
) -> Result<Bytes, NoForm> {
    let raw = message(schema, object)?;
    Ok(envelope(api_version, kind, &raw))
}

/// Encodes a message of a type, without an envelope.
pub(crate) fn message(schema: &Schema, object: &Value) -> Result<Vec<u8>, NoForm> {
    let mut raw = Vec::with_capacity(512);
    Writer { table: schema.table() }.contents(schema.root(), object, &mut raw)?;
    Ok(raw)
}

/// Wraps a message in its envelope.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Bytes {
    let (head, tail) = envelope_around(api_version, kind, raw.len());
    [&head[..], raw, &tail[..]].concat().into()
}

/// Returns the parts of an envelope before and after a message of this length.
pub(crate) fn envelope_around(api_version: &str, kind: &str, length: usize) -> (Bytes, Bytes) {
    let mut head = Vec::with_capacity(api_version.len() + kind.len() + 24);
    head.extend_from_slice(MAGIC);
    nested(&mut head, 1, |kind_of| {
        put_bytes(kind_of, 1, api_version.as_bytes());
        put_bytes(kind_of, 2, kind.as_bytes());
    });
    put_varint(&mut head, 2 << 3 | 2);
    put_varint(&mut head, length as u64);
    // Empty content encoding and content type.
    let mut tail = Vec::new();
    put_bytes(&mut tail, 3, b"");
    put_bytes(&mut tail, 4, b"");
    (head.into(), tail.into())
}

/// Encodes a watch event around an object in its envelope.
pub(crate) fn watch_event(into: &mut Vec<u8>, kind: &str, object: &[u8]) {
    put_bytes(into, 1, kind.as_bytes());
    nested(into, 2, |raw| put_bytes(raw, 1, object));
}

/// Encodes a field that holds bytes: a string or a message.
pub(crate) fn put_bytes(into: &mut Vec<u8>, number: u64, contents: &[u8]) {
    put_varint(into, number << 3 | 2);
    put_varint(into, contents.len() as u64);
    into.extend_from_slice(contents);
}

pub(crate) fn put_number(into: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(into, number << 3);
    put_varint(into, value);
}

pub(crate) fn put_double(into: &mut Vec<u8>, number: u64, value: f64) {
    put_varint(into, number << 3 | 1);
    into.extend_from_slice(&value.to_le_bytes());
}

fn put_varint(into: &mut Vec<u8>, mut rest: u64) {
    while rest > 0x7f {
        into.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

/// Encodes a field that holds what `write` writes.
pub(crate) fn nested<T>(into: &mut Vec<u8>, number: u64, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    put_varint(into, number << 3 | 2);
    let start = into.len();
    let written = write(into);
    // The length precedes the contents, which are already written: append it and rotate it to the front.
    let length = into.len() - start;
    put_varint(into, length as u64);
    into[start..].rotate_left(length);
    written
}

struct Writer<'t> {
    table: &'t Table,
}

impl Writer<'_> {
    /// Encodes the contents of a value's message.
    fn contents(&self, ty: TypeId, value: &Value, into: &mut Vec<u8>) -> Result<(), NoForm> {
        match (self.table.shape(ty), value) {
            (Shape::Struct(of), Value::Object(object)) => {
                self.members(of, numbers::of(&of.name).ok_or(NoForm)?, object, into)
            }
            // Lists and maps within maps are wrapped in a message.
            (Shape::List(_) | Shape::Map(_), value) => self.field(1, ty, value, into),
            (Shape::Scalar(Scalar::Any), value) => self.any(ty, value, into),
            _ => Ok(()),
        }
    }

    fn members(
        &self,
        of: &Struct,
        numbers: &Message,
        object: &Map<String, Value>,
        into: &mut Vec<u8>,
    ) -> Result<(), NoForm> {
        for (number, member) in numbers.members() {
            match member {
                Member::Field(name) => {
                    let (Some(field), Some(value)) = (of.field(name), object.get(name)) else { continue };
                    if (&*of.name, name) == LIST_IN_A_MESSAGE {
                        nested(into, number, |into| self.field(1, field.ty, value, into))?;
                    } else if DURATIONS.contains(&(&*of.name, name)) {
                        nested(into, number, |into| put_number(into, 1, nanoseconds(value)));
                    } else {
                        self.field(number, field.ty, value, into)?;
                    }
                }
                Member::Inlined(part) => {
                    let part = numbers::of_inlined(part).ok_or(NoForm)?;
                    nested(into, number, |into| self.members(of, part, object, into))?;
                }
            }
        }
        Ok(())
    }

    fn field(&self, number: u64, ty: TypeId, value: &Value, into: &mut Vec<u8>) -> Result<(), NoForm> {
        match (self.table.shape(ty), value) {
            (_, Value::Null) => Ok(()),
            (Shape::List(list), Value::Array(items)) => {
                items.iter().try_for_each(|item| self.field(number, list.item, item, into))
            }
            (Shape::Map(map), Value::Object(entries)) => entries.iter().try_for_each(|(key, value)| {
                nested(into, number, |into| {
                    put_bytes(into, 1, key.as_bytes());
                    self.value(2, map.value, value, into)
                })
            }),
            _ => self.value(number, ty, value, into),
        }
    }

    /// Encodes one occurrence of a field.
    fn value(&self, number: u64, ty: TypeId, value: &Value, into: &mut Vec<u8>) -> Result<(), NoForm> {
        match self.table.shape(ty) {
            Shape::Scalar(Scalar::Any) | Shape::Struct(_) | Shape::List(_) | Shape::Map(_) => {
                nested(into, number, |into| self.contents(ty, value, into))
            }
            Shape::Scalar(scalar) => {
                self::scalar(number, *scalar, value, into);
                Ok(())
            }
        }
    }

    /// Encodes the parts of a CRD schema that have several possible JSON types.
    fn any(&self, ty: TypeId, value: &Value, into: &mut Vec<u8>) -> Result<(), NoForm> {
        let is = |name: &str| self.table.by_name(&format!("{CUSTOM}.{name}")) == Some(ty);
        let schema = self.table.by_name(&format!("{CUSTOM}.JSONSchemaProps")).ok_or(NoForm)?;
        match value {
            value if is("JSON") => put_bytes(into, 1, value.to_string().as_bytes()),
            Value::Array(items) if is("JSONSchemaPropsOrArray") => {
                for item in items {
                    self.value(2, schema, item, into)?;
                }
            }
            Value::Array(items) => {
                items.iter().filter_map(Value::as_str).for_each(|item| put_bytes(into, 2, item.as_bytes()));
            }
            Value::Bool(allows) => put_number(into, 1, u64::from(*allows)),
            value if is("JSONSchemaPropsOrBool") => {
                // A schema implies `true`.
                put_number(into, 1, 1);
                self.value(2, schema, value, into)?;
            }
            value => self.value(1, schema, value, into)?,
        }
        Ok(())
    }
}

fn nanoseconds(value: &Value) -> u64 {
    let duration: Option<jiff::SignedDuration> = value.as_str().and_then(|text| text.parse().ok());
    duration.and_then(|duration| u64::try_from(duration.as_nanos()).ok()).unwrap_or(0)
}

fn scalar(number: u64, scalar: Scalar, value: &Value, into: &mut Vec<u8>) {
    let text = value.as_str().unwrap_or_default();
    match scalar {
        Scalar::String => put_bytes(into, number, text.as_bytes()),
        Scalar::Bool => put_number(into, number, u64::from(value.as_bool() == Some(true))),
        Scalar::Int32 | Scalar::Int64 => put_number(into, number, integer(value)),
        Scalar::Float => put_double(into, number, value.as_f64().unwrap_or_default()),
        Scalar::Bytes => put_bytes(into, number, &STANDARD.decode(text).unwrap_or_default()),
        Scalar::Quantity => nested(into, number, |into| match value {
            Value::String(text) => put_bytes(into, 1, text.as_bytes()),
            plain => put_bytes(into, 1, plain.to_string().as_bytes()),
        }),
        Scalar::Time | Scalar::MicroTime => nested(into, number, |into| time(text, into)),
        Scalar::IntOrString => nested(into, number, |into| int_or_string(value, into)),
        Scalar::Raw | Scalar::Fields | Scalar::Any => {
            nested(into, number, |into| put_bytes(into, 1, value.to_string().as_bytes()));
        }
    }
}

/// Encodes an integer. Negative ones are in two's complement, whatever their width.
fn integer(value: &Value) -> u64 {
    value.as_i64().map_or_else(|| value.as_u64().unwrap_or_default(), |number| number as u64)
}

fn time(text: &str, into: &mut Vec<u8>) {
    let Ok(time) = text.parse::<Timestamp>() else { return };
    put_number(into, 1, time.as_second() as u64);
    put_number(into, 2, time.subsec_nanosecond() as u64);
}

fn int_or_string(value: &Value, into: &mut Vec<u8>) {
    match value {
        Value::String(text) => {
            put_number(into, 1, 1);
            put_number(into, 2, 0);
            put_bytes(into, 3, text.as_bytes());
        }
        number => {
            put_number(into, 1, 0);
            put_number(into, 2, integer(number));
            put_bytes(into, 3, b"");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::decode::{Format, decode};
    use crate::schema::{FieldValidation, Target};

    /// Checks that an encoded object decodes to the same as its JSON.
    fn check(name: &str, object: &Value) {
        let target = Target::built_in(name).expect("the type is in the table");
        let api_version = object["apiVersion"].as_str().unwrap();
        let body = document(&target.schema, api_version, object["kind"].as_str().unwrap(), object).unwrap();
        let read = |format: Format, body: &[u8]| match decode(&target, format, body, FieldValidation::Strict)
        {
            Ok(decoded) => decoded.object,
            Err(failure) => panic!("{name}: {}", failure.message),
        };
        let expected = read(Format::Json, object.to_string().as_bytes());
        assert!(read(Format::Protobuf, &body) == expected, "{name}: {expected:.500}");
    }

    #[test]
    fn written_yaml_reads_back_as_json() {
        check(
            "io.k8s.api.core.v1.Pod",
            &json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "p", "creationTimestamp": "2023-11-14T22:13:20Z", "labels": {"a": "b", "c": "d"},
                    "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}, "fieldsType": "FieldsV1"}],
                },
                "spec": {
                    "priority": -7,
                    "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
                    "containers": [{
                        "name": "c",
                        "resources": {"limits": {"cpu": "250m"}},
                        "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 300},
                        "readinessProbe": {"tcpSocket": {"port": 80}},
                    }],
                },
            }),
        );
        check(
            "io.k8s.api.core.v1.Secret",
            &json!({"apiVersion": "v1", "kind": "Secret", "immutable": false, "data": {"k": "/wA="}}),
        );
        check(
            "io.k8s.api.authorization.v1.SubjectAccessReview",
            &json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": "u", "extra": {"scopes": ["a", "b"]}},
            }),
        );
        check(
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
            &json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {"group": "g", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
                    "type": "object", "default": {"a": [1, "x"]}, "additionalProperties": {"type": "string"},
                    "properties": {"a": {"items": {"type": "string"}}, "b": {"additionalProperties": true}},
                    "minimum": 1.5,
                }}}]},
            }),
        );
    }

    #[test]
    fn long_messages_have_long_lengths() {
        let text = "x".repeat(70_000);
        check(
            "io.k8s.api.core.v1.ConfigMap",
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": text, "l": "y".repeat(200)}}),
        );
    }

    #[test]
    fn verbs_are_in_a_message_of_their_own() {
        let name = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResource";
        let schema = Schema::built_in(name).unwrap();
        let raw = message(&schema, &json!({"name": "pods", "verbs": ["get", "list"]})).unwrap();
        assert_eq!(raw, b"\x0a\x04pods\x22\x0b\x0a\x03get\x0a\x04list");
    }
}
