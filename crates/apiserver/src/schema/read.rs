//! Checks a document against a schema in one pass, and converts it to its stored form: drops unknown fields, omits
//! nulls and empty optional fields, and sets required ones to their zero.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::go::{Position, TypeName};
use super::{Scalar, Schema, Shape, Struct, Table, TypeId, number, scalar, syntax, zero};

/// v1.34 reports at most this many strict decoding problems per document.
pub(super) const MAX_PROBLEMS: usize = 100;

/// Maximum number of JSON objects in a document. Two or three bytes of a body make one, and each takes up to a
/// kilobyte with the fields that are always present: 100 MB. The largest object that can be stored has far fewer.
const MAX_OBJECTS: usize = 100_000;

/// The findings of a pass, besides the value.
pub(super) struct Findings<'t> {
    table: &'t Table,
    strict: bool,
    /// Unknown and duplicate fields, in document order; only collected when strict.
    pub(super) problems: Vec<String>,
    /// The first value of a wrong type.
    pub(super) failure: Option<String>,
    /// The fraction in the failure, if there is one.
    fraction: Option<f64>,
    objects: usize,
}

/// The error if decoding stopped at something worse than what was found before.
pub(super) const STOPPED: &str = "the document was not read to its end";

pub(super) fn read<'de, D: Deserializer<'de>>(
    schema: &Schema,
    strict: bool,
    document: D,
) -> (Result<Value, D::Error>, Findings<'_>) {
    let mut findings = Findings {
        table: schema.table(),
        strict,
        problems: Vec::new(),
        failure: None,
        fraction: None,
        objects: 0,
    };
    let value =
        Reader { findings: &mut findings, ty: schema.root(), at: &Position::ROOT }.deserialize(document);
    (value, findings)
}

impl Findings<'_> {
    /// Returns the failure, with its number as written in the document.
    pub(super) fn failure_in(self, text: &[u8]) -> Option<String> {
        let Some(fraction) = self.fraction else { return self.failure };
        let failure = self.failure?;
        match syntax::fractions(text).find(|written| written.parse() == Ok(fraction)) {
            Some(written) => {
                Some(failure.replacen(&format!("number {fraction:?}"), &format!("number {written}"), 1))
            }
            None => Some(failure),
        }
    }

    fn mismatch(&mut self, at: &Position<'_>, found: &str, expected: TypeId) {
        if self.failure.is_none() {
            self.failure = Some(at.mismatch(found, TypeName(self.table, expected)));
        }
    }

    fn problem(&mut self, what: &str, at: &Position<'_>, key: &str) {
        if !self.strict || self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let problem = format!("{what} field {:?}", at.path_to(key));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Decodes one value of type `ty` at a position.
struct Reader<'r, 't> {
    findings: &'r mut Findings<'t>,
    ty: TypeId,
    at: &'r Position<'r>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Value, D::Error> {
        match self.findings.table.shape(self.ty) {
            Shape::Scalar(Scalar::Any | Scalar::Raw | Scalar::Fields) => {
                serde::Deserialize::deserialize(document)
            }
            _ => document.deserialize_any(self),
        }
    }
}

impl<'t> Reader<'_, 't> {
    fn shape(&self) -> &'t Shape {
        self.findings.table.shape(self.ty)
    }

    /// Records a value of the wrong type and continues, because syntax errors in the rest take precedence.
    fn wrong<E>(self, found: &str) -> Result<Value, E> {
        self.findings.mismatch(self.at, found, self.ty);
        Ok(Value::Null)
    }

    /// Stops decoding: types with their own codec stop at what they cannot decode.
    fn stop<E: serde::de::Error>(self, message: String) -> Result<Value, E> {
        self.findings.failure = Some(message);
        Err(E::custom(STOPPED))
    }

    fn stop_wrong<E: serde::de::Error>(self, found: &str) -> Result<Value, E> {
        let message = self.at.mismatch(found, TypeName(self.findings.table, self.ty));
        self.stop(message)
    }

    fn scalar(&self) -> Option<Scalar> {
        match self.shape() {
            Shape::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    fn text<E: serde::de::Error>(self, text: std::borrow::Cow<'_, str>) -> Result<Value, E> {
        let read = match self.scalar() {
            Some(Scalar::String | Scalar::IntOrString) => return Ok(Value::String(text.into_owned())),
            Some(Scalar::Time) => scalar::time(text),
            Some(Scalar::MicroTime) => scalar::micro_time(text),
            Some(Scalar::Quantity) => scalar::quantity(text),
            Some(Scalar::Bytes) => match scalar::base64(text) {
                Ok(value) => return Ok(value),
                Err(message) => {
                    self.findings.failure.get_or_insert(message);
                    return Ok(Value::Null);
                }
            },
            _ => return self.wrong("string"),
        };
        read.or_else(|message| self.stop(message))
    }

    fn integer<E: serde::de::Error>(self, number: i128) -> Result<Value, E> {
        let in_range = match self.scalar() {
            Some(Scalar::Int32 | Scalar::IntOrString) => i32::try_from(number).is_ok(),
            Some(Scalar::Int64) => i64::try_from(number).is_ok(),
            Some(Scalar::Float) => true,
            Some(Scalar::Quantity) => return self.text(number.to_string().into()),
            Some(Scalar::Time | Scalar::MicroTime) => return self.stop_wrong("number"),
            _ => return self.wrong("number"),
        };
        match (in_range, self.scalar()) {
            (true, _) => Ok(Number::from_i128(number).map_or(Value::Null, Value::Number)),
            (false, Some(Scalar::IntOrString)) => self.stop_wrong(&format!("number {number}")),
            (false, _) => self.wrong(&format!("number {number}")),
        }
    }

    /// Returns the value of an empty list. It is the same as none, except for managed fields: there it means the same
    /// as one empty entry, a reset.
    fn empty_list(&self, item: TypeId) -> Value {
        match self.findings.table.shape(item) {
            Shape::Struct(of) if of.name.ends_with(".ManagedFieldsEntry") => {
                Value::Array(vec![Value::Object(Map::new())])
            }
            _ => Value::Null,
        }
    }

    fn object<'de, A: MapAccess<'de>>(self, fields: &'t Struct, mut document: A) -> Result<Value, A::Error> {
        self.findings.objects += 1;
        if self.findings.objects > MAX_OBJECTS {
            return self.stop(format!("the document has more than {MAX_OBJECTS} objects"));
        }
        let mut found = Fields::new(fields);
        while let Some(key) = document.next_key_seed(KeyReader(fields))? {
            let index = match key {
                Key::Field(index) => index,
                Key::Unknown(name) => {
                    self.findings.problem("unknown", self.at, &name);
                    document.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let field = &fields.fields[index];
            let at = self.at.field(&fields.name, &field.name);
            let value =
                document.next_value_seed(Reader { findings: self.findings, ty: field.ty, at: &at })?;
            if found.put(self.findings.table, index, value) {
                self.findings.problem("duplicate", self.at, &field.name);
            }
        }
        Ok(Value::Object(found.into_object(self.findings.table)))
    }

    fn map<'de, A: MapAccess<'de>>(self, value: TypeId, mut document: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = document.next_key_seed(NameReader)? {
            let at = self.at.key(&key);
            let read = document.next_value_seed(Reader { findings: self.findings, ty: value, at: &at })?;
            let read = if read.is_null() { zero_item(self.findings.table, value) } else { read };
            if object.contains_key(&key) {
                self.findings.problem("duplicate", self.at, &key);
            }
            object.insert(key, read);
        }
        Ok(if object.is_empty() { Value::Null } else { Value::Object(object) })
    }
}

/// A struct's fields as found in a document, in any order.
struct Fields<'t> {
    of: &'t Struct,
    values: Vec<(usize, Value)>,
    seen: Seen,
}

impl<'t> Fields<'t> {
    fn new(of: &'t Struct) -> Self {
        Self { of, values: Vec::with_capacity(of.fields.len().min(16)), seen: Seen::default() }
    }

    /// Sets a field's value; the last one wins. Returns whether there was one before.
    fn put(&mut self, table: &Table, index: usize, value: Value) -> bool {
        let twice = self.seen.twice(index);
        if twice {
            self.values.retain(|(other, _)| *other != index);
        }
        let field = &self.of.fields[index];
        if !value.is_null() && (field.keeps_empty || !zero::is_omitted(table, field, &value)) {
            self.values.push((index, value));
        }
        twice
    }

    /// Builds the object, with the fields that are always present. Building a map in order is fastest.
    fn into_object(mut self, table: &Table) -> Map<String, Value> {
        for index in self.of.always.iter().map(|index| usize::from(*index)) {
            if !self.values.iter().any(|(found, _)| *found == index) {
                self.values.push((index, zero::zero_field(table, &self.of.fields[index])));
            }
        }
        self.values.sort_unstable_by_key(|(index, _)| *index);
        let fields = &self.of.fields;
        self.values.into_iter().map(|(index, value)| (fields[index].name.to_string(), value)).collect()
    }
}

/// Returns the value of a null list item or map value.
fn zero_item(table: &Table, ty: TypeId) -> Value {
    match table.shape(ty) {
        Shape::Scalar(Scalar::Bytes) => Value::String(String::new()),
        _ => zero::zero(table, ty),
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of type {}", TypeName(self.findings.table, self.ty))
    }

    fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Value, E> {
        match self.scalar() {
            Some(Scalar::Bool) => Ok(Value::Bool(on)),
            Some(Scalar::Quantity) => self.stop(scalar::no_quantity()),
            Some(Scalar::Time | Scalar::MicroTime | Scalar::IntOrString) => self.stop_wrong("bool"),
            _ => self.wrong("bool"),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Value, E> {
        self.integer(number.into())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Value, E> {
        self.integer(number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        match self.scalar() {
            Some(Scalar::Float) => Ok(number::of_double(number)),
            Some(Scalar::Quantity) => self.text(number.to_string().into()),
            Some(Scalar::Int32 | Scalar::Int64) => {
                if self.findings.failure.is_none() {
                    self.findings.fraction = Some(number);
                }
                self.wrong(&format!("number {number:?}"))
            }
            Some(Scalar::IntOrString) => {
                self.findings.fraction = Some(number);
                self.stop_wrong(&format!("number {number:?}"))
            }
            Some(Scalar::Time | Scalar::MicroTime) => self.stop_wrong("number"),
            _ => self.wrong("number"),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.text(text.into())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.text(text.into())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, document: D) -> Result<Value, D::Error> {
        self.deserialize(document)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut document: A) -> Result<Value, A::Error> {
        let Shape::List(list) = self.shape() else {
            while document.next_element::<IgnoredAny>()?.is_some() {}
            return match self.scalar() {
                Some(Scalar::Quantity) => self.stop(scalar::no_quantity()),
                Some(Scalar::Time | Scalar::MicroTime | Scalar::IntOrString) => self.stop_wrong("array"),
                _ => self.wrong("array"),
            };
        };
        let mut items = Vec::new();
        loop {
            let at = self.at.index(items.len());
            let reader = Reader { findings: self.findings, ty: list.item, at: &at };
            match document.next_element_seed(reader)? {
                Some(Value::Null) => items.push(zero_item(self.findings.table, list.item)),
                Some(item) => items.push(item),
                None if items.is_empty() => return Ok(self.empty_list(list.item)),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut document: A) -> Result<Value, A::Error> {
        match self.shape() {
            Shape::Struct(fields) => self.object(fields, document),
            Shape::Map(map) => self.map(map.value, document),
            shape => {
                while document.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                match shape {
                    Shape::Scalar(Scalar::Quantity) => self.stop(scalar::no_quantity()),
                    Shape::Scalar(Scalar::Time | Scalar::MicroTime | Scalar::IntOrString) => {
                        self.stop_wrong("object")
                    }
                    _ => self.wrong("object"),
                }
            }
        }
    }
}

/// A struct's fields seen so far. No built-in type has more fields than this has bits; a custom one that does has its
/// duplicates beyond the last bit unreported.
#[derive(Default)]
struct Seen(u128);

impl Seen {
    fn twice(&mut self, index: usize) -> bool {
        let bit = 1u128.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0);
        let seen = self.0 & bit != 0;
        self.0 |= bit;
        seen
    }
}

enum Key {
    Field(usize),
    Unknown(String),
}

/// Decodes a key and finds its field, without keeping a known key.
struct KeyReader<'t>(&'t Struct);

impl<'de> DeserializeSeed<'de> for KeyReader<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Key, D::Error> {
        document.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyReader<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        Ok(self.0.index_of(name).map_or_else(|| Key::Unknown(name.to_owned()), Key::Field))
    }
}

/// Decodes a map key.
struct NameReader;

impl<'de> DeserializeSeed<'de> for NameReader {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<String, D::Error> {
        serde::Deserialize::deserialize(document)
    }
}
