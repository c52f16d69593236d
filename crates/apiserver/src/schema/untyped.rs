//! JSON without a schema, with its duplicate keys.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::go::Position;
use super::read::MAX_PROBLEMS;
use super::syntax;

/// A parsed document and its strict decoding problems: `duplicate field "spec.replicas"`.
pub(crate) struct Untyped {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

/// Parses JSON; fails with v1.34's message.
pub(crate) fn parse(text: &[u8]) -> Result<Untyped, String> {
    if syntax::may_be_too_deep(text) {
        syntax::check(text)?;
    }
    let mut duplicates = Vec::new();
    let mut document = serde_json::Deserializer::from_slice(text);
    let reader = Reader { duplicates: &mut duplicates, at: &Position::ROOT };
    match reader.deserialize(&mut document).and_then(|value| document.end().map(|()| value)) {
        Ok(value) => Ok(Untyped { value, duplicates }),
        Err(_) if std::str::from_utf8(text).is_err() => parse(String::from_utf8_lossy(text).as_bytes()),
        Err(error) => Err(syntax::check(text).err().unwrap_or_else(|| error.to_string())),
    }
}

struct Reader<'r> {
    duplicates: &'r mut Vec<String>,
    at: &'r Position<'r>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Value, D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, on: bool) -> Result<Value, E> {
        Ok(Value::Bool(on))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut document: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = self.at.index(items.len());
            match document.next_element_seed(Reader { duplicates: self.duplicates, at: &at })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut document: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = document.next_key::<String>()? {
            let at = self.at.key(&key);
            let value = document.next_value_seed(Reader { duplicates: self.duplicates, at: &at })?;
            if object.contains_key(&key) && self.duplicates.len() < MAX_PROBLEMS {
                self.duplicates.push(format!("duplicate field {:?}", self.at.path_to(&key)));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
