//! Converts untyped values to typed ones, as v1.34 converts the result of a strategic merge patch. That does not use
//! the JSON decoder, so rules and messages differ.
//!
//! Integers are accepted where floats are expected, and truncated to their size. There are no other implicit
//! conversions.

use serde_json::Value;

use super::go::{TypeName, kind_of};
use super::{Scalar, Schema, Shape, Struct, Table, TypeId, scalar};

/// Converts a value to its schema's type. Fails at the first mismatch, in field order.
pub(crate) fn convert(schema: &Schema, value: &mut Value) -> Result<(), String> {
    Converter { table: schema.table() }.value(schema.root(), value)
}

struct Converter<'t> {
    table: &'t Table,
}

impl Converter<'_> {
    fn value(&self, ty: TypeId, value: &mut Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        match (self.table.shape(ty), value) {
            (Shape::Struct(of), Value::Object(members)) => self.fields(of, members),
            (Shape::Struct(_), other) => Err(format!("cannot restore struct from: {}", reflected(other))),
            (Shape::Map(map), Value::Object(members)) => {
                members.values_mut().try_for_each(|value| self.value(map.value, value))
            }
            (Shape::Map(_), other) => Err(format!("cannot restore map from {}", reflected(other))),
            (Shape::List(list), Value::Array(items)) => {
                items.iter_mut().try_for_each(|item| self.value(list.item, item))
            }
            (Shape::List(_), other) => Err(format!("cannot restore slice from {}", reflected(other))),
            (Shape::Scalar(scalar), value) => self.scalar(ty, *scalar, value),
        }
    }

    fn fields(&self, of: &Struct, members: &mut serde_json::Map<String, Value>) -> Result<(), String> {
        let mut ordered: Vec<_> = members.iter_mut().map(|(name, value)| (of.ranked(name), value)).collect();
        ordered.sort_by_key(|((rank, _), _)| *rank);
        for ((_, ty), value) in ordered {
            if let Some(ty) = ty {
                self.value(ty, value)?;
            }
        }
        Ok(())
    }

    fn scalar(&self, ty: TypeId, scalar: Scalar, value: &mut Value) -> Result<(), String> {
        match scalar {
            Scalar::String => match value {
                Value::String(_) => Ok(()),
                Value::Number(number) if !number.is_f64() => Err(self.unconvertible("int64", ty)),
                _ => Err("unrecognized type: string".to_owned()),
            },
            Scalar::Bool if value.is_boolean() => Ok(()),
            Scalar::Bool => Err("unrecognized type: bool".to_owned()),
            Scalar::Int32 | Scalar::Int64 => self.integer(ty, scalar, value),
            Scalar::Float if value.is_number() => Ok(()),
            Scalar::Float => Err("unrecognized type: float64".to_owned()),
            Scalar::Bytes => match value {
                Value::String(text) => scalar::base64(text.as_str().into())
                    .map(drop)
                    .map_err(|why| format!("error decoding from json: {why}")),
                Value::Array(_) => Ok(()),
                other => Err(format!("cannot restore slice from {}", reflected(other))),
            },
            Scalar::Time | Scalar::MicroTime => match value {
                Value::String(text) if scalar == Scalar::Time => scalar::time(text.as_str().into()).map(drop),
                Value::String(text) => scalar::micro_time(text.as_str().into()).map(drop),
                other => Err(unmarshal(kind_of(other), "string")),
            },
            Scalar::Quantity => match value {
                Value::String(text) => scalar::quantity(text.as_str().into()).map(drop),
                Value::Number(number) => scalar::quantity(number.to_string().into()).map(drop),
                _ => Err(scalar::no_quantity()),
            },
            Scalar::IntOrString => match value {
                Value::String(_) => Ok(()),
                Value::Number(number) => {
                    match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
                        Some(_) => Ok(()),
                        None => Err(unmarshal(&format!("number {number}"), "int32")),
                    }
                }
                other => Err(unmarshal(kind_of(other), "int32")),
            },
            Scalar::Raw | Scalar::Fields | Scalar::Any => Ok(()),
        }
    }

    fn integer(&self, ty: TypeId, scalar: Scalar, value: &mut Value) -> Result<(), String> {
        let name = if scalar == Scalar::Int32 { "int32" } else { "int64" };
        let Value::Number(number) = value else { return Err(format!("unrecognized type: {name}")) };
        let whole = match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole,
            (None, Some(fraction)) if fraction.fract() == 0.0 => fraction as i64,
            _ => return Err(self.unconvertible("float64", ty)),
        };
        *value = match scalar {
            // Go's conversion keeps the lower bits.
            Scalar::Int32 => (whole as i32).into(),
            _ => whole.into(),
        };
        Ok(())
    }

    fn unconvertible(&self, from: &str, to: TypeId) -> String {
        format!("cannot convert {from} to {}", TypeName(self.table, to))
    }
}

/// Returns the error of a type with its own decoder.
fn unmarshal(found: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {found} into Go value of type {expected}")
}

/// Returns the kind of a value in Go's reflection.
fn reflected(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conversion_errors_have_the_converters_messages() {
        let deployment = Schema::built_in_kind("apps", "v1", "Deployment").unwrap();
        for (spec, why) in [
            (json!("x"), "cannot restore struct from: string"),
            (json!([1]), "cannot restore struct from: slice"),
            (json!({"replicas": "x"}), "unrecognized type: int32"),
            (json!({"replicas": 1.5}), "cannot convert float64 to int32"),
            (json!({"paused": "true"}), "unrecognized type: bool"),
            (json!({"selector": {"matchLabels": "x"}}), "cannot restore map from string"),
            (json!({"selector": {"matchLabels": {"a": 1}}}), "cannot convert int64 to string"),
            (json!({"selector": {"matchLabels": {"a": true}}}), "unrecognized type: string"),
            (json!({"strategy": {"type": 1}}), "cannot convert int64 to v1.DeploymentStrategyType"),
            (
                json!({"strategy": {"rollingUpdate": {"maxSurge": true}}}),
                "json: cannot unmarshal bool into Go value of type int32",
            ),
            (json!({"template": {"spec": {"containers": {}}}}), "cannot restore slice from map"),
            (json!({"template": "x", "replicas": "x"}), "unrecognized type: int32"),
            (
                json!({"template": {"metadata": {"creationTimestamp": 1}}}),
                "json: cannot unmarshal number into Go value of type string",
            ),
        ] {
            let mut object = json!({"spec": spec});
            assert_eq!(convert(&deployment, &mut object), Err(why.to_owned()), "{spec}");
        }
    }

    #[test]
    fn whole_numbers_are_cut_to_size() {
        let deployment = Schema::built_in_kind("apps", "v1", "Deployment").unwrap();
        for (given, made) in [(json!(2.0), json!(2)), (json!(5_000_000_000_i64), json!(705_032_704))] {
            let mut object = json!({"spec": {"replicas": given}});
            assert_eq!(convert(&deployment, &mut object), Ok(()));
            assert_eq!(object["spec"]["replicas"], made);
        }
    }
}
