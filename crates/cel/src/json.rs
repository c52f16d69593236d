//! Values as JSON, within limits.
//!
//! Values share their parts, so a few steps can describe more JSON than fits into memory, and nest it deeper than a
//! decoder reads. A conversion therefore ends at a limit.

use serde_json::{Map, Value as Json};

use super::value::{Key, Val};

/// The maximum nesting of a document: the limit of decoders.
const DEEPEST: usize = 127;

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
        self.at(value, 0)
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

    fn at(&mut self, value: &Val, depth: usize) -> Result<Json, String> {
        if depth > DEEPEST {
            return Err(format!("the result is nested more than {DEEPEST} levels deep"));
        }
        // A separator, and the shortest value.
        self.take(2)?;
        match value {
            Val::Double(number) => Ok(double(*number)),
            Val::List(list) => {
                let items = list.items.iter().map(|item| self.at(item, depth + 1));
                items.collect::<Result<Vec<_>, _>>().map(Json::Array)
            }
            Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
                let mut fields = Map::new();
                for (key, value) in entries.iter() {
                    let Key::String(name) = key else {
                        let ty = key.val().type_name().to_owned();
                        return Err(format!("map key {:?} is of type {ty}, not string", key.to_string()));
                    };
                    self.take(name.len() + 3)?;
                    fields.insert(name.to_string(), self.at(value, depth + 1)?);
                }
                Ok(Json::Object(fields))
            }
            Val::Message(message) => {
                let mut fields = Map::new();
                for (name, value) in &message.fields {
                    self.take(name.len() + 3)?;
                    fields.insert(name.to_string(), self.at(value, depth + 1)?);
                }
                Ok(Json::Object(fields))
            }
            Val::Optional(Some(inner)) => self.at(inner, depth),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{CALL_LIMIT, Environment};

    fn converted(text: &str, bytes: usize) -> Result<Json, String> {
        let program = Environment::new().with_patch_types().compile(text).expect("an expression");
        let value = program.evaluate(&BTreeMap::new(), CALL_LIMIT).0.expect("a value");
        JsonLimit::new(bytes).convert(&value)
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
