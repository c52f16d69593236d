//! v1.34's wording for decoding errors: the Go decoder's names for types and positions.

use std::fmt;

use super::{Scalar, Shape, Table, TypeId};
use crate::field::shown_path;

/// A type in a decoding error: `[]v1.Container`, `map[string]string`, `int32`.
pub(super) struct TypeName<'a>(pub &'a Table, pub TypeId);

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(table, id) = *self;
        let ty = table.get(id);
        if let Some(alias) = &ty.alias {
            return f.write_str(alias);
        }
        match &ty.shape {
            Shape::Struct(fields) => f.write_str(qualified(&fields.name)),
            Shape::List(list) => write!(f, "[]{}", TypeName(table, list.item)),
            Shape::Map(map) => write!(f, "map[{}]{}", map.key, TypeName(table, map.value)),
            Shape::Scalar(scalar) => f.write_str(scalar_name(*scalar)),
        }
    }
}

fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String | Scalar::Time | Scalar::MicroTime => "string",
        Scalar::Bool => "bool",
        Scalar::Int32 | Scalar::IntOrString => "int32",
        Scalar::Int64 => "int64",
        Scalar::Float => "float64",
        Scalar::Bytes => "[]uint8",
        Scalar::Quantity => "resource.Quantity",
        Scalar::Raw => "runtime.RawExtension",
        Scalar::Fields => "v1.FieldsV1",
        Scalar::Any => "interface {}",
    }
}

/// Returns `v1.Pod` for `io.k8s.api.core.v1.Pod`.
fn qualified(name: &str) -> &str {
    match name.rmatch_indices('.').nth(1) {
        Some((dot, _)) => &name[dot + 1..],
        None => name,
    }
}

/// Returns `Pod` for `io.k8s.api.core.v1.Pod`.
pub(super) fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The decoder's position in a document. Built on the stack, formatted only for an error.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    parent: Option<&'a Position<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    /// A struct field, with the struct's name.
    Field(&'a str, &'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Position<'a> {
    pub(super) const ROOT: Position<'static> = Position { parent: None, step: Step::Root };

    pub(super) fn field<'b>(&'b self, owner: &'b str, name: &'b str) -> Position<'b> {
        Position { parent: Some(self), step: Step::Field(owner, name) }
    }

    pub(super) fn key<'b>(&'b self, key: &'b str) -> Position<'b> {
        Position { parent: Some(self), step: Step::Key(key) }
    }

    pub(super) fn index(&self, index: usize) -> Position<'_> {
        Position { parent: Some(self), step: Step::Index(index) }
    }

    /// Returns the path of a key: `spec.containers[0].imag`.
    pub(super) fn path_to(&self, key: &str) -> String {
        let mut path = self.path();
        path.truncate(shown_path(&path).len());
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        path
    }

    fn path(&self) -> String {
        let mut path = self.parent.map(Position::path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Field(_, name) | Step::Key(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
        }
        path
    }

    /// Returns the innermost struct, and the fields that lead to this position, without keys and indexes.
    fn within(&self) -> Option<(&'a str, String)> {
        let outer = self.parent.and_then(Position::within);
        match (self.step, outer) {
            (Step::Field(owner, name), Some((_, fields))) => Some((owner, format!("{fields}.{name}"))),
            (Step::Field(owner, name), None) => Some((owner, name.to_owned())),
            (_, outer) => outer,
        }
    }

    /// Returns the decoder's message for a value of the wrong type.
    pub(super) fn mismatch(&self, found: &str, expected: impl fmt::Display) -> String {
        match self.within() {
            Some((owner, fields)) => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{fields} of type {expected}",
                bare(owner)
            ),
            None => format!("json: cannot unmarshal {found} into Go value of type {expected}"),
        }
    }
}

/// Returns the decoder's name for the type of a JSON value.
pub(crate) fn kind_of(value: &serde_json::Value) -> &'static str {
    use serde_json::Value;
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
