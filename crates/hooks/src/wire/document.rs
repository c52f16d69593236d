//! JSON documents, with their duplicate fields, which strict mode rejects.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum number of duplicate fields in a message.
const MAX_REPORTED: usize = 10;

/// A document and the paths of its duplicate fields. Of two values for a field, the last one counts.
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

/// Reads a document. Nesting is limited by the parser.
pub(super) fn read(bytes: &[u8]) -> Result<Document, serde_json::Error> {
    let duplicates = RefCell::default();
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &Path::Root, duplicates: &duplicates }.deserialize(&mut parser)?;
    parser.end()?;
    Ok(Document { value, duplicates: duplicates.into_inner() })
}

/// The path of a value. Only formatted if there is something to report.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, nth) => write!(f, "{parent}[{nth}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    path: &'a Path<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl Node<'_> {
    fn report(&self, path: &Path<'_>) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MAX_REPORTED {
            duplicates.push(path.to_string());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = Path::Item(self.path, values.len());
            match items.next_element_seed(Node { path: &path, ..self })? {
                Some(value) => values.push(value),
                None => return Ok(values.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            if values.contains_key(&name) {
                self.report(&path);
            }
            let value = fields.next_value_seed(Node { path: &path, ..self })?;
            values.insert(name, value);
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_fields_are_found_at_any_depth_and_the_last_one_counts() {
        let text = br#"{"a":1,"b":[{"c":1,"c":2},{"d":{"e":1,"e":null}}],"a":3}"#;
        let document = read(text).expect("JSON");
        assert_eq!(document.duplicates, ["b[0].c", "b[1].d.e", "a"]);
        assert_eq!(document.value, json!({"a": 3, "b": [{"c": 2}, {"d": {"e": null}}]}));
    }

    #[test]
    fn numbers_and_texts_are_kept() {
        let text = r#"[1,-1,1.5,18446744073709551615,"\u00e4",true,null]"#;
        let document = read(text.as_bytes()).expect("JSON");
        assert_eq!(document.value, serde_json::from_str::<Value>(text).expect("JSON"));
    }

    #[test]
    fn what_is_not_one_document_is_refused() {
        let deep = "[".repeat(1_000_000);
        for text in ["", "{", "{} {}", "nonsense", deep.as_str()] {
            assert!(read(text.as_bytes()).is_err());
        }
    }
}
