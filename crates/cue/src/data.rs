//! Concrete data: injected into an instance, and the arguments and results of builtins.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::error::{Error, ErrorKind};
use crate::number::Number;
use crate::value::Atom;

/// A concrete value. Shared, because references copy it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Atom(Atom),
    List(Vec<Arc<Data>>),
    Struct(Vec<(Arc<str>, Arc<Data>)>),
}

/// The maximum nesting of injected data: passes over it recurse.
const MAX_DEPTH: usize = 64;

impl Data {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Atom(Atom::text(text))
    }

    pub(crate) fn from_json(json: &Json) -> Result<Self, Error> {
        Self::nested(json, 0)
    }

    fn nested(json: &Json, depth: usize) -> Result<Self, Error> {
        if depth > MAX_DEPTH {
            let message = format!("data is nested more than {MAX_DEPTH} deep");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(match json {
            Json::Null => Self::Atom(Atom::Null),
            Json::Bool(value) => Self::Atom(Atom::Bool(*value)),
            Json::Number(number) => Self::Atom(Atom::Number(from_json_number(number)?)),
            Json::String(text) => Self::text(text.as_str()),
            Json::Array(items) => {
                let items = items.iter().map(|item| Self::nested(item, depth + 1).map(Arc::new));
                Self::List(items.collect::<Result<_, Error>>()?)
            }
            Json::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    Ok((name.as_str().into(), Arc::new(Self::nested(value, depth + 1)?)))
                });
                Self::Struct(fields.collect::<Result<_, Error>>()?)
            }
        })
    }

    /// Returns the elements of a list.
    pub(crate) fn items(&self) -> Option<&[Arc<Self>]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Writes the data as JSON, with fields in their order.
    pub(crate) fn json_text(&self) -> Result<String, Error> {
        let mut out = String::new();
        self.write_json(&mut out)?;
        Ok(out)
    }

    fn write_json(&self, out: &mut String) -> Result<(), Error> {
        match self {
            Self::Atom(atom) => out.push_str(&atom_to_json(atom)?.to_string()),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.write_json(out)?;
                }
                out.push(']');
            }
            Self::Struct(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(&Json::from(&**name).to_string());
                    out.push(':');
                    value.write_json(out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }

    /// Returns the approximate size of the data as text: exact except for escapes and indentation.
    pub(crate) fn written_size(&self) -> usize {
        match self {
            Self::Atom(Atom::Text(text)) => text.len() + 2,
            Self::Atom(Atom::Bytes(bytes)) => bytes.len() / 3 * 4 + 6,
            Self::Atom(_) => 8,
            Self::List(items) => items.iter().map(|item| item.written_size() + 1).sum::<usize>() + 2,
            Self::Struct(fields) => {
                fields.iter().map(|(name, value)| name.len() + value.written_size() + 4).sum::<usize>() + 2
            }
        }
    }

    /// Returns the data as JSON. Byte sequences become base64, as in the reference implementation.
    pub(crate) fn to_json(&self) -> Result<Json, Error> {
        Ok(match self {
            Self::Atom(atom) => atom_to_json(atom)?,
            Self::List(items) => {
                Json::Array(items.iter().map(|item| item.to_json()).collect::<Result<_, _>>()?)
            }
            Self::Struct(fields) => {
                let fields = fields.iter().map(|(name, value)| Ok((name.to_string(), value.to_json()?)));
                Json::Object(fields.collect::<Result<_, Error>>()?)
            }
        })
    }
}

fn from_json_number(number: &serde_json::Number) -> Result<Number, Error> {
    if let Some(value) = number.as_i64() {
        return Ok(Number::int(value.into()));
    }
    if let Some(value) = number.as_u64() {
        return Ok(Number::int(value.into()));
    }
    let parsed = Number::parse_decimal(&number.to_string()).map(Number::to_decimal);
    parsed.ok_or_else(|| Error::new(ErrorKind::Conflict, format!("the number {number} is too large")))
}

pub(crate) fn atom_to_json(atom: &Atom) -> Result<Json, Error> {
    Ok(match atom {
        Atom::Null => Json::Null,
        Atom::Bool(value) => Json::Bool(*value),
        Atom::Text(text) => Json::String(text.to_string()),
        Atom::Bytes(bytes) => Json::String(crate::builtins::base64::encode(bytes)),
        Atom::Number(number) => number_to_json(number)?,
    })
}

fn number_to_json(number: &Number) -> Result<Json, Error> {
    let too_large =
        || Error::new(ErrorKind::Conflict, format!("the number {number} does not fit into JSON's 64 bits"));
    if number.is_int() {
        let value = number.as_i128().ok_or_else(too_large)?;
        if let Ok(value) = i64::try_from(value) {
            return Ok(Json::from(value));
        }
        return u64::try_from(value).map(Json::from).map_err(|_| too_large());
    }
    serde_json::Number::from_f64(number.to_f64()).map(Json::Number).ok_or_else(too_large)
}
