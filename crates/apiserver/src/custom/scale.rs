//! The scale paths of custom resources.

use serde_json::Value;

use crate::json::JsonMut;

/// The paths of a CRD's scale subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// As written in the CRD: `.spec.replicas`.
    pub written: String,
    pub spec: Vec<String>,
    pub status: Vec<String>,
    pub selector: Option<Vec<String>>,
    /// As written in the CRD, for messages.
    pub written_status: String,
    pub written_selector: String,
}

impl ScalePaths {
    pub(super) fn of(scale: &Value) -> Option<Self> {
        let text = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (written, status, selector) =
            (text("specReplicasPath"), text("statusReplicasPath"), text("labelSelectorPath"));
        Some(Self {
            spec: split(&written),
            status: split(&status),
            selector: Some(split(&selector)).filter(|_| !selector.is_empty()),
            written,
            written_status: status,
            written_selector: selector,
        })
        .filter(|_| scale.is_object())
    }
}

fn split(path: &str) -> Vec<String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(Into::into).collect()
}

/// Returns the value at a path; fails if an intermediate value is not an object.
pub(crate) fn nested<'v>(object: &'v Value, path: &[String]) -> Result<Option<&'v Value>, String> {
    let mut value = object;
    for (at, name) in path.iter().enumerate() {
        match value {
            Value::Object(fields) => match fields.get(name) {
                Some(found) => value = found,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => {
                let shown = path[..at].iter().map(|name| format!(".{name}")).collect::<String>();
                return Err(format!(
                    "{shown} accessor error: {other} is of the type {}, expected map[string]interface{{}}",
                    go_type(other)
                ));
            }
        }
    }
    Ok(Some(value))
}

/// Returns the number at a path.
pub(crate) fn nested_number(object: &Value, path: &[String]) -> Result<Option<i64>, String> {
    match nested(object, path)? {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| wrong(path, value, "int64")),
    }
}

/// Returns the string at a path.
pub(crate) fn nested_text<'v>(object: &'v Value, path: &[String]) -> Result<Option<&'v str>, String> {
    match nested(object, path)? {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| wrong(path, value, "string")),
    }
}

fn wrong(path: &[String], value: &Value, expected: &str) -> String {
    let shown = path.iter().map(|name| format!(".{name}")).collect::<String>();
    let value_shown = value.as_str().map_or_else(|| value.to_string(), Into::into);
    format!("{shown} accessor error: {value_shown} is of the type {}, expected {expected}", go_type(value))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Sets the value at a path, creating intermediate objects.
pub(crate) fn set_nested(object: &mut Value, path: &[String], value: impl Into<Value>) {
    let Some((last, way)) = path.split_last() else { return };
    let mut at = object;
    for name in way {
        at = at.object_mut(name);
    }
    at.set(last, value);
}
