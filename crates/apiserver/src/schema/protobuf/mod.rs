//! Converts protobuf bodies, which Go clients send for built-in kinds, to JSON values and back.
//!
//! ```text
//!  "k8s\0" ─► envelope (apiVersion, kind, raw) ─► message ─► JSON value ─► read like any other document
//! ```
//!
//! The schema defines the types of fields, `numbers.txt` their numbers. Invariants: unknown field numbers are skipped,
//! as usual in protobuf; nothing is read beyond the body; the depth and the number of messages are bounded.

mod numbers;
mod wire;
pub(crate) mod write;

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use self::numbers::{Member, Message};
use self::wire::{Fields, Malformed, Wire, varint};
use super::{Scalar, Schema, Shape, Struct, Table, TypeId};

const MAGIC: &[u8] = b"k8s\0";

const NO_MAGIC: &str =
    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";

/// Deeper than any API object; only the schemas of custom resources are recursive.
const MAX_DEPTH: usize = 128;

/// The contents of an envelope.
pub(super) struct Envelope<'a> {
    pub(super) api_version: String,
    pub(super) kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    pub(super) fn open(body: &'a [u8]) -> Result<Self, String> {
        let Some(body) = body.strip_prefix(MAGIC) else {
            return Err(NO_MAGIC.to_owned());
        };
        Self::read(body).map_err(|malformed| malformed.to_string())
    }

    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut envelope = Self { api_version: String::new(), kind: String::new(), raw: &[] };
        for field in Fields(body) {
            match field? {
                (1, Wire::Bytes(kind)) => envelope.read_kind(kind)?,
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                (3, Wire::Bytes(encoding)) if !encoding.is_empty() => {
                    return Err(Malformed::new("encoded contents are not understood").at("contentEncoding"));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_kind(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for field in Fields(message) {
            match field? {
                (1, wire) => self.api_version = text(wire)?,
                (2, wire) => self.kind = text(wire)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Decodes the object inside, as a value of the schema's type.
    pub(super) fn object(&self, schema: &Schema) -> Result<Value, String> {
        let reader = Reader { table: schema.table(), left: Cell::new(MAX_MESSAGES) };
        reader.value(schema.root(), Wire::Bytes(self.raw), 0).map_err(|malformed| malformed.to_string())
    }
}

struct Reader<'t> {
    table: &'t Table,
    /// How many more messages may be read.
    left: Cell<usize>,
}

/// Returns the version and kind that an envelope states.
pub(crate) fn stated(body: &[u8]) -> Result<(String, String), String> {
    Envelope::open(body).map(|envelope| (envelope.api_version, envelope.kind))
}

/// Returns the fields of the message in an envelope that hold bytes, by number.
pub(crate) fn byte_fields(body: &[u8]) -> Result<Vec<(u64, &[u8])>, String> {
    let fields = Fields(Envelope::open(body)?.raw).map(|field| match field {
        Ok((number, Wire::Bytes(contents))) => Ok(Some((number, contents))),
        Ok(_) => Ok(None),
        Err(malformed) => Err(malformed.to_string()),
    });
    fields.filter_map(Result::transpose).collect()
}

/// Whether bytes start with Kubernetes' protobuf prefix.
pub(crate) fn is_marked(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Maximum number of messages in a body. An empty one takes two bytes to send and about 700 to hold: 70 MB.
const MAX_MESSAGES: usize = 100_000;

/// Estimates the number of messages in a body of this length; those of real objects take more than eight bytes.
pub(crate) fn likely_messages(length: usize) -> usize {
    (length / 8).min(MAX_MESSAGES)
}

impl Reader<'_> {
    fn value(&self, ty: TypeId, wire: Wire<'_>, depth: usize) -> Result<Value, Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed::new("messages are nested too deeply"));
        }
        match self.table.shape(ty) {
            Shape::Struct(of) => self.object(of, bytes(wire)?, depth),
            Shape::Scalar(Scalar::Any) => self.any(ty, bytes(wire)?, depth),
            Shape::Scalar(scalar) => self::scalar(*scalar, wire),
            // Lists and maps within maps are wrapped in a message.
            Shape::List(_) | Shape::Map(_) => {
                let mut value = Value::Null;
                for field in Fields(bytes(wire)?) {
                    self.add(&mut value, ty, field?.1, depth)?;
                }
                Ok(value)
            }
        }
    }

    fn object(&self, of: &Struct, message: &[u8], depth: usize) -> Result<Value, Malformed> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| Malformed::new("there are too many messages"))?);
        let mut object = Map::new();
        match numbers::of(&of.name) {
            Some(numbers) => self.fields(of, numbers, message, &mut object, depth)?,
            None => return Err(Malformed::new("there is no protobuf form of this type")),
        }
        Ok(Value::Object(object))
    }

    fn fields(
        &self,
        of: &Struct,
        numbers: &Message,
        message: &[u8],
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Malformed> {
        for field in Fields(message) {
            let (number, wire) = field?;
            match numbers.member(number) {
                Some(Member::Field(name)) => {
                    let Some(field) = of.field(name) else { continue };
                    let value = object.entry(name).or_insert(Value::Null);
                    self.add(value, field.ty, wire, depth).map_err(|malformed| malformed.at(name))?;
                }
                Some(Member::Inlined(part)) => {
                    let Some(part) = numbers::of_inlined(part) else { continue };
                    self.fields(of, part, bytes(wire)?, object, depth)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Adds one occurrence of a field: another item, another entry, or the value.
    fn add(&self, value: &mut Value, ty: TypeId, wire: Wire<'_>, depth: usize) -> Result<(), Malformed> {
        match self.table.shape(ty) {
            Shape::List(list) => {
                if value.is_null() {
                    *value = Value::Array(Vec::new());
                }
                let Value::Array(items) = value else { return Ok(()) };
                self.items(items, list.item, wire, depth)
            }
            Shape::Map(map) => {
                if value.is_null() {
                    *value = Value::Object(Map::new());
                }
                let Value::Object(entries) = value else { return Ok(()) };
                self.entry(entries, map.value, bytes(wire)?, depth)
            }
            Shape::Struct(_) | Shape::Scalar(_) => {
                *value = self.value(ty, wire, depth + 1)?;
                Ok(())
            }
        }
    }

    /// Adds an item, or several packed numbers.
    fn items(
        &self,
        items: &mut Vec<Value>,
        item: TypeId,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<(), Malformed> {
        let is_number =
            matches!(self.table.shape(item), Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Bool));
        match wire {
            Wire::Bytes(mut packed) if is_number => {
                while !packed.is_empty() {
                    let number = Wire::Varint(varint(&mut packed)?);
                    items.push(self.value(item, number, depth + 1)?);
                }
            }
            wire => items.push(self.value(item, wire, depth + 1)?),
        }
        Ok(())
    }

    fn entry(
        &self,
        entries: &mut Map<String, Value>,
        ty: TypeId,
        message: &[u8],
        depth: usize,
    ) -> Result<(), Malformed> {
        let (mut key, mut value) = (String::new(), Value::Null);
        for field in Fields(message) {
            match field? {
                (1, wire) => key = text(wire)?,
                (2, wire) => {
                    value = self.value(ty, wire, depth + 1).map_err(|malformed| malformed.at(&key))?
                }
                _ => {}
            }
        }
        entries.insert(key, value);
        Ok(())
    }

    /// Decodes the parts of a CRD schema that have several possible JSON types.
    fn any(&self, ty: TypeId, message: &[u8], depth: usize) -> Result<Value, Malformed> {
        let is = |name: &str| self.table.by_name(&format!("{CUSTOM}.{name}")) == Some(ty);
        let Some(schema) = self.table.by_name(&format!("{CUSTOM}.JSONSchemaProps")) else {
            return Ok(Value::Null);
        };
        let mut either = Value::Null;
        let mut items = Vec::new();
        for field in Fields(message) {
            match field? {
                (2, wire) if is("JSONSchemaPropsOrArray") => {
                    items.push(self.value(schema, wire, depth + 1)?)
                }
                (2, wire) if is("JSONSchemaPropsOrStringArray") => items.push(text(wire)?.into()),
                (1, wire) if is("JSONSchemaPropsOrBool") => either = (number(wire)? != 0).into(),
                (1, wire) if is("JSON") => either = json(bytes(wire)?)?,
                (1 | 2, wire) => either = self.value(schema, wire, depth + 1)?,
                _ => {}
            }
        }
        Ok(if items.is_empty() { either } else { items.into() })
    }
}

/// The package of the CRD types.
const CUSTOM: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

fn scalar(scalar: Scalar, wire: Wire<'_>) -> Result<Value, Malformed> {
    Ok(match scalar {
        Scalar::String => text(wire)?.into(),
        Scalar::Bool => (number(wire)? != 0).into(),
        Scalar::Int32 => (number(wire)? as i32).into(),
        Scalar::Int64 => number(wire)?.into(),
        Scalar::Float => float(wire)?.into(),
        Scalar::Bytes => STANDARD.encode(bytes(wire)?).into(),
        Scalar::Quantity => part(wire, 1)?.map_or(Ok(Value::Null), |wire| text(wire).map(Value::from))?,
        Scalar::Time => time(wire)?.map_or(Value::Null, |time| seconds(time).to_string().into()),
        Scalar::MicroTime => time(wire)?.map_or(Value::Null, |time| format!("{time:.6}").into()),
        Scalar::IntOrString => int_or_string(wire)?,
        Scalar::Raw | Scalar::Fields | Scalar::Any => {
            part(wire, 1)?.map_or(Ok(Value::Null), |wire| json(bytes(wire)?))?
        }
    })
}

/// Returns a member of a message of scalars; the last one wins.
fn part(message: Wire<'_>, number: u64) -> Result<Option<Wire<'_>>, Malformed> {
    let mut found = None;
    for field in Fields(bytes(message)?) {
        let (at, wire) = field?;
        if at == number {
            found = Some(wire);
        }
    }
    Ok(found)
}

fn int_or_string(wire: Wire<'_>) -> Result<Value, Malformed> {
    let is_text = part(wire, 1)?.map_or(Ok(0), number)? == 1;
    match is_text {
        true => Ok(part(wire, 3)?.map_or(Ok(String::new()), text)?.into()),
        false => Ok((part(wire, 2)?.map_or(Ok(0), number)? as i32).into()),
    }
}

/// Decodes a time to the microsecond; `None` for zero.
fn time(wire: Wire<'_>) -> Result<Option<Timestamp>, Malformed> {
    let second = part(wire, 1)?.map_or(Ok(0), number)?;
    let nanos = part(wire, 2)?.map_or(Ok(0), number)? as i32;
    if second == 0 && nanos == 0 {
        return Ok(None);
    }
    let time = Timestamp::new(second, nanos / 1000 * 1000);
    time.map(Some).map_err(|_| Malformed::new("a time outside of the calendar"))
}

fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn json(bytes: &[u8]) -> Result<Value, Malformed> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(bytes).map_err(|_| Malformed::new("raw contents that are not JSON"))
}

fn bytes(wire: Wire<'_>) -> Result<&[u8], Malformed> {
    match wire {
        Wire::Bytes(bytes) => Ok(bytes),
        _ => Err(Malformed::new("a number where bytes were expected")),
    }
}

fn text(wire: Wire<'_>) -> Result<String, Malformed> {
    let text = std::str::from_utf8(bytes(wire)?).map_err(|_| Malformed::new("text that is not UTF-8"))?;
    Ok(text.to_owned())
}

/// Decodes a number. Negative ones are in two's complement, whatever their width.
fn number(wire: Wire<'_>) -> Result<i64, Malformed> {
    match wire {
        Wire::Varint(number) => Ok(number as i64),
        _ => Err(Malformed::new("other than a number where one was expected")),
    }
}

fn float(wire: Wire<'_>) -> Result<f64, Malformed> {
    match wire {
        Wire::Fixed64(bits) => Ok(f64::from_bits(bits)),
        Wire::Fixed32(bits) => Ok(f32::from_bits(bits).into()),
        Wire::Varint(_) | Wire::Bytes(_) => Err(Malformed::new("other than a number where one was expected")),
    }
}

#[cfg(test)]
mod tests;
