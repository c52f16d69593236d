//! Values as JSON, within limits.
//!
//! Values share their parts, so a few steps can describe more JSON than fits into memory, and nest it deeper than a
//! decoder reads. A conversion therefore ends at a limit.

use serde_json::{Map, Value as Json};

use super::value::{Key, Val};

/// The maximum nesting of a document: the limit of decoders.
const DEEPEST: usize = 127;

/// How numbers, times and nulls are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Integers are exact.
    Exact,
    /// As Go's protocol buffers do: integers that a double cannot hold become texts.
    Proto,
    /// A message among them: its numbers are doubles, and it has neither times nor nulls.
    ProtoMessage,
}

/// Limits the total JSON of several values.
#[derive(Debug)]
pub struct JsonLimit {
    bytes: usize,
    left: usize,
}

impl JsonLimit {
    /// Allows about this many bytes of text.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, left: bytes }
    }

    /// Converts a value. Fails for types that JSON does not have.
    pub fn convert(&mut self, value: &Val) -> Result<Json, String> {
        self.at(value, Form::Exact, 0)
    }

    /// Converts a value as Go's protocol buffers do, which v1.34 uses for the values of JSON patches. Fails for types
    /// and numbers that they do not have.
    pub fn convert_as_proto(&mut self, value: &Val) -> Result<Json, String> {
        self.at(value, Form::Proto, 0)
    }

    /// Converts a text.
    pub fn text(&mut self, text: &str) -> Result<Json, String> {
        self.take(text.len() + 2)?;
        Ok(text.into())
    }

    fn take(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(format!("the result is larger than {} bytes", self.bytes)),
        }
        Ok(())
    }

    fn at(&mut self, value: &Val, form: Form, depth: usize) -> Result<Json, String> {
        if depth > DEEPEST {
            return Err(format!("the result is nested more than {DEEPEST} levels deep"));
        }
        // A separator, and the shortest value.
        self.take(2)?;
        match value {
            Val::Double(number) if form == Form::Exact => Ok(double(*number)),
            Val::Double(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Duration(_)
            | Val::Timestamp(_)
            | Val::Null
                if form != Form::Exact =>
            {
                proto(value, form)
            }
            Val::List(list) => {
                let items = list.items.iter().map(|item| self.at(item, form, depth + 1));
                items.collect::<Result<Vec<_>, _>>().map(Json::Array)
            }
            Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
                let mut fields = Map::new();
                for (key, value) in entries.iter() {
                    let Key::String(name) = key else {
                        if form == Form::Proto {
                            return Err(unconvertible_key(key));
                        }
                        let ty = key.val().type_name().to_owned();
                        return Err(format!("map key {:?} is of type {ty}, not string", key.to_string()));
                    };
                    self.take(name.len() + 3)?;
                    fields.insert(name.to_string(), self.at(value, form, depth + 1)?);
                }
                Ok(Json::Object(fields))
            }
            Val::Message(message) => {
                let form = if form == Form::Exact { form } else { Form::ProtoMessage };
                let mut fields = Map::new();
                for (name, value) in &message.fields {
                    self.take(name.len() + 3)?;
                    fields.insert(name.to_string(), self.at(value, form, depth + 1)?);
                }
                Ok(Json::Object(fields))
            }
            Val::Optional(Some(inner)) => self.at(inner, form, depth),
            Val::String(text) => {
                self.take(text.len())?;
                Ok(value.to_json())
            }
            Val::Bytes(bytes) => {
                self.take(bytes.len())?;
                Ok(value.to_json())
            }
            Val::Null | Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Duration(_) | Val::Timestamp(_) => {
                Ok(value.to_json())
            }
            Val::Optional(None) if form != Form::Exact => Err("optional.none() dereference".into()),
            other => Err(format!("a value of type {} cannot be converted to JSON", other.type_name())),
        }
    }
}

/// A whole number has no fraction, as JSON encoders of Go write it.
fn double(number: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number {
        number if number.fract() == 0.0 && number.abs() <= EXACT => (number as i64).into(),
        number if number.is_nan() => "NaN".into(),
        number if number.is_infinite() => (if number > 0.0 { "Infinity" } else { "-Infinity" }).into(),
        number => number.into(),
    }
}

/// Converts a number, a time or null as Go's protocol buffers do.
fn proto(value: &Val, form: Form) -> Result<Json, String> {
    // A double holds all integers up to here.
    const SAFE: u64 = (1 << 53) - 1;
    if form == Form::ProtoMessage {
        return match value {
            Val::Int(number) => proto_double(*number as f64, form),
            Val::Uint(number) => proto_double(*number as f64, form),
            Val::Double(number) => proto_double(*number, form),
            Val::Duration(_) => Err("proto: invalid type: time.Duration".into()),
            Val::Timestamp(_) => Err("proto: invalid type: time.Time".into()),
            _ => Err("proto: invalid type: structpb.NullValue".into()),
        };
    }
    match value {
        Val::Int(number) if number.unsigned_abs() > SAFE => Ok(number.to_string().into()),
        Val::Uint(number) if *number > SAFE => Ok(number.to_string().into()),
        Val::Double(number) => proto_double(*number, form),
        Val::Duration(nanoseconds) => Ok(format!("{}s", seconds(*nanoseconds)).into()),
        other => Ok(other.to_json()),
    }
}

/// Returns v1.34's error for a key of a map that is no text.
fn unconvertible_key(key: &Key) -> String {
    match key {
        Key::Bool(_) => "type conversion error from bool to 'string'".into(),
        key => format!("unsupported type conversion from '{}' to string", key.val().type_name()),
    }
}

/// Returns seconds as Go does: rounded to a double.
fn seconds(nanoseconds: i64) -> f64 {
    const SECOND: i64 = 1_000_000_000;
    (nanoseconds / SECOND) as f64 + (nanoseconds % SECOND) as f64 / SECOND as f64
}

/// Whole numbers have the fewest digits that identify the double, then zeros.
fn proto_double(number: f64, form: Form) -> Result<Json, String> {
    let shown = match number {
        number if number.is_nan() => "NaN",
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        number => {
            let text = number.to_string();
            let whole = text.parse::<i64>().map(Json::from).or_else(|_| text.parse::<u64>().map(Json::from));
            return Ok(whole.unwrap_or_else(|_| number.into()));
        }
    };
    let ty = if form == Form::ProtoMessage { "Struct" } else { "Value" };
    Err(format!(
        "json: error calling MarshalJSON for type *structpb.{ty}: proto: google.protobuf.Value.number_value: invalid {shown} value"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{CALL_LIMIT, Environment};

    fn evaluated(text: &str) -> Val {
        let program = Environment::new().with_patch_types().compile(text).expect("an expression");
        program.evaluate(&BTreeMap::new(), CALL_LIMIT).0.expect("a value")
    }

    fn converted(text: &str, bytes: usize) -> Result<Json, String> {
        JsonLimit::new(bytes).convert(&evaluated(text))
    }

    #[test]
    fn values_become_what_go_would_write() {
        for (text, expected) in [
            ("Object{a: 1, b: [1.0, 1.5], c: {'x': null}}", json!({"a": 1, "b": [1, 1.5], "c": {"x": null}})),
            ("[[1], [2]]", json!([[1], [2]])),
            ("b'abc'", json!("YWJj")),
            ("duration('90s')", json!("1m30s")),
            ("timestamp('2025-01-01T00:00:00Z')", json!("2025-01-01T00:00:00Z")),
            ("optional.of('x')", json!("x")),
            ("double('NaN')", json!("NaN")),
        ] {
            assert_eq!(converted(text, 1000), Ok(expected), "{text}");
        }
    }

    #[test]
    fn integers_that_a_double_cannot_hold_become_texts_in_protocol_buffers() {
        for (text, expected) in [
            ("9007199254740991", json!(9_007_199_254_740_991_i64)),
            ("-9007199254740991", json!(-9_007_199_254_740_991_i64)),
            ("9007199254740992", json!("9007199254740992")),
            ("-9007199254740993", json!("-9007199254740993")),
            ("18446744073709551615u", json!("18446744073709551615")),
            ("[{'a': 9007199254740993}]", json!([{"a": "9007199254740993"}])),
            (
                "Object{a: 9007199254740993, b: 7u, c: [1.0, 1.5]}",
                json!({"a": 9_007_199_254_740_992_i64, "b": 7, "c": [1, 1.5]}),
            ),
            ("1152921504606846976.0", json!(1_152_921_504_606_847_000_i64)),
            ("1e19", json!(10_000_000_000_000_000_000_u64)),
            ("0.25", json!(0.25)),
            ("duration('90s')", json!("90s")),
            ("duration('-1500ms')", json!("-1.5s")),
            ("timestamp('2025-01-01T00:00:00Z')", json!("2025-01-01T00:00:00Z")),
            ("[null]", json!([null])),
        ] {
            assert_eq!(JsonLimit::new(1000).convert_as_proto(&evaluated(text)), Ok(expected), "{text}");
        }
        for (text, expected) in [
            (
                "double('NaN')",
                "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: invalid NaN value",
            ),
            ("{1: 'a'}", "unsupported type conversion from 'int' to string"),
            ("[{true: 'a'}]", "type conversion error from bool to 'string'"),
            ("optional.none()", "optional.none() dereference"),
            ("Object{a: null}", "proto: invalid type: structpb.NullValue"),
            ("Object{a: duration('1s')}", "proto: invalid type: time.Duration"),
        ] {
            let why = JsonLimit::new(1000).convert_as_proto(&evaluated(text));
            assert_eq!(why, Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_json_does_not_have_is_an_error() {
        for (text, expected) in [
            ("{1: 'a'}", "map key \"1\" is of type int, not string"),
            ("type(1)", "a value of type type cannot be converted to JSON"),
            ("quantity('1')", "a value of type kubernetes.Quantity cannot be converted to JSON"),
            ("optional.none()", "a value of type optional_type cannot be converted to JSON"),
        ] {
            assert_eq!(converted(text, 1000), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn shared_parts_count_as_often_as_they_are_written() {
        let mut text = "'0123456789'".to_owned();
        for _ in 0..20 {
            text = format!("optional.of({text}).optMap(x, [x, x]).value()");
        }
        let why = converted(&text, 1 << 20).unwrap_err();
        assert_eq!(why, "the result is larger than 1048576 bytes");
    }
}
