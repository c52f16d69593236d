//! Validates applied values against their type, with v1.34's messages.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::element;
use super::schema_node::SchemaNode;
use crate::field::{MAX_ERRORS, shown_path};
use crate::schema::{List, ListKind, Scalar, Shape};

/// Checks a configuration. Reports all errors as one message.
pub(super) fn validate(place: SchemaNode<'_>, value: &Value) -> Result<(), String> {
    let mut errors = ValidationErrors::default();
    check(place, "", value, &mut errors);
    errors.into_result()
}

/// Checks an existing object, whose lists may have duplicates. Its managed fields are not part of it.
pub(super) fn validate_live(place: SchemaNode<'_>, object: &Value) -> Result<(), String> {
    let mut errors = ValidationErrors { allows_duplicates: true, ..ValidationErrors::default() };
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    check(place, "", &object, &mut errors);
    errors.into_result()
}
/// The errors, up to a limit: beyond it the value is rejected anyway.
#[derive(Default)]
struct ValidationErrors {
    found: Vec<String>,
    allows_duplicates: bool,
}

impl ValidationErrors {
    fn push(&mut self, why: String) {
        if self.found.len() < MAX_ERRORS {
            self.found.push(why);
        }
    }

    fn into_result(self) -> Result<(), String> {
        match self.found.as_slice() {
            [] => Ok(()),
            [one] => Err(one.clone()),
            many => Err(format!("errors:\n  {}", many.join("\n  "))),
        }
    }
}

fn check(place: SchemaNode<'_>, path: &str, value: &Value, errors: &mut ValidationErrors) {
    let Some(shape) = place.shape() else { return };
    match (shape, value) {
        (_, Value::Null) => {}
        (Shape::Struct(_) | Shape::Map(_), Value::Object(fields)) => {
            check_fields(place, path, fields, errors)
        }
        (Shape::Struct(_) | Shape::Map(_), other) => {
            errors.push(at(path, &format!("expected map, got &{{{}}}", shown(other))))
        }
        (Shape::List(list), Value::Array(items)) => check_items(place, path, list, items, errors),
        (Shape::List(_), other) => {
            errors.push(at(path, &format!("expected list, got &{{{}}}", shown(other))))
        }
        (Shape::Scalar(scalar), value) => {
            if let Some(why) = scalar_error(*scalar, value) {
                errors.push(at(path, &why));
            }
        }
    }
}

/// Stops at the first undeclared field, as v1.34 does.
fn check_fields(
    place: SchemaNode<'_>,
    path: &str,
    fields: &Map<String, Value>,
    errors: &mut ValidationErrors,
) {
    let is_struct = matches!(place.shape(), Some(Shape::Struct(of)) if !of.fields.is_empty() && !of.open);
    let path = shown_path(path);
    for (name, value) in fields {
        let path = format!("{path}.{name}");
        if is_struct && !place.declares(name) {
            errors.push(at(&path, "field not declared in schema"));
            return;
        }
        check(place.named(name), &path, value, errors);
    }
}

fn check_items(
    place: SchemaNode<'_>,
    path: &str,
    list: &List,
    items: &[Value],
    errors: &mut ValidationErrors,
) {
    let mut seen = BTreeSet::new();
    let path = shown_path(path);
    for (index, item) in items.iter().enumerate() {
        let element = match list.kind {
            ListKind::Atomic => format!("i:{index}"),
            _ => match place.identify(list, item) {
                Ok(element) => element,
                Err(why) => return errors.push(at(path, &format!("element {index}: {why}"))),
            },
        };
        let shown = element::shown(&element);
        let below = format!("{path}{shown}");
        if seen.contains(&element) && !errors.allows_duplicates {
            errors.push(at(path, &format!("duplicate entries for key {shown}")));
        }
        check(place.item(list), &below, item, errors);
        seen.insert(element);
    }
}

fn scalar_error(scalar: Scalar, value: &Value) -> Option<String> {
    let is_scalar = !value.is_object() && !value.is_array();
    match scalar {
        Scalar::Int32 | Scalar::Int64 | Scalar::Float if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", type_name(value)))
        }
        Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime if !value.is_string() => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        Scalar::Bool if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", shown(value))),
        Scalar::Quantity | Scalar::IntOrString if !is_scalar => {
            Some(format!("expected any scalar, got &{{{}}}", shown(value)))
        }
        _ => None,
    }
}

fn at(path: &str, why: &str) -> String {
    if path.is_empty() { why.to_owned() } else { format!("{path}: {why}") }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a value in Go's syntax.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items = items.iter().map(go_syntax);
            format!("[]interface {{}}{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Number(_) => "int64",
        Value::Null => "<nil>",
    }
}
