//! The value of an unset field, and when a value counts as unset.

use serde_json::{Map, Value};

use super::{Field, Scalar, Shape, Table, TypeId};

/// Returns the value written for an unset field of this type.
pub(super) fn zero(table: &Table, ty: TypeId) -> Value {
    match table.shape(ty) {
        Shape::Struct(fields) => {
            let mut object = Map::new();
            for &index in &fields.always {
                let field = &fields.fields[usize::from(index)];
                object.insert(field.name.to_string(), zero_field(table, field));
            }
            Value::Object(object)
        }
        Shape::Map(_) | Shape::List(_) => Value::Null,
        Shape::Scalar(scalar) => zero_scalar(*scalar),
    }
}

pub(super) fn zero_field(table: &Table, field: &Field) -> Value {
    if field.pointer { Value::Null } else { zero(table, field.ty) }
}

fn zero_scalar(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String => Value::String(String::new()),
        Scalar::Bool => Value::Bool(false),
        Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString => Value::from(0),
        Scalar::Quantity => Value::from("0"),
        Scalar::Bytes | Scalar::Time | Scalar::MicroTime | Scalar::Raw | Scalar::Fields | Scalar::Any => {
            Value::Null
        }
    }
}

/// Whether a field set to `value` is omitted.
pub(super) fn is_omitted(table: &Table, field: &Field, value: &Value) -> bool {
    if field.omit_zero && value.is_null() {
        return true;
    }
    field.omit_empty
        && (value.is_null() && is_nullable(table, field)
            || !field.pointer && is_empty(table, field.ty, value))
}

/// Whether null means that this field is empty, rather than a struct's zero.
fn is_nullable(table: &Table, field: &Field) -> bool {
    field.pointer || !is_struct_like(table, field.ty)
}

fn is_empty(table: &Table, ty: TypeId, value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty() && !is_struct_like(table, ty),
        Value::Bool(on) => !on,
        Value::Number(number) => !is_struct_like(table, ty) && number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty() && matches!(table.shape(ty), Shape::Map(_)),
        Value::Null => false,
    }
}

/// Whether values of a type are never empty: structs, and scalars with their own codec.
fn is_struct_like(table: &Table, ty: TypeId) -> bool {
    match table.shape(ty) {
        Shape::Struct(_) => true,
        Shape::Map(_) | Shape::List(_) => false,
        Shape::Scalar(scalar) => matches!(
            scalar,
            Scalar::Time
                | Scalar::MicroTime
                | Scalar::Quantity
                | Scalar::IntOrString
                | Scalar::Raw
                | Scalar::Fields
                | Scalar::Any
        ),
    }
}

/// Marks the fields of every struct that are written even when unset.
pub(super) fn mark_always_written(table: &mut Table) {
    let always: Vec<Box<[u16]>> = (0..table.types.len()).map(|index| always_written(table, index)).collect();
    for (ty, always) in table.types.iter_mut().zip(always) {
        if let Shape::Struct(fields) = &mut ty.shape {
            fields.always = always;
        }
    }
}

fn always_written(table: &Table, index: usize) -> Box<[u16]> {
    let Shape::Struct(fields) = &table.types[index].shape else { return Box::default() };
    let written = |field: &Field| {
        !field.omit_zero && (!field.omit_empty || !field.pointer && is_struct_like(table, field.ty))
    };
    (0u16..).zip(&fields.fields).filter(|(_, field)| written(field)).map(|(index, _)| index).collect()
}
