//! The metadata of converted objects: a webhook may change labels and annotations. Name, namespace and uid must stay the
//! same; everything else is restored.

use serde_json::{Map, Value};

use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::labels;

/// Checks that an object is still the same one.
pub(super) fn check_identity(original: &Value, converted: &Value) -> Result<(), String> {
    let (before, after) = (original.at("metadata"), converted.at("metadata"));
    for (field, named) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        if before.text(field) != after.text(field) {
            let (before, after) = (before.text(field), after.text(field));
            return Err(format!("must have the same {named}: {before} != {after}"));
        }
    }
    Ok(())
}

/// Restores the metadata of the original, except for labels and annotations.
pub(super) fn restore(original: &Value, converted: &mut Value) -> Result<(), String> {
    let returned = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".into()),
        Some(Value::Object(returned)) => returned,
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", go_type(&other)));
        }
    };
    let mut restored = original.map("metadata").cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match returned.get(field) {
            None | Some(Value::Null) => _ = restored.remove(field),
            Some(Value::Object(pairs)) => {
                check(field, pairs, restored.get(field))?;
                restored.insert(field.to_owned(), Value::Object(pairs.clone()));
            }
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    go_type(other)
                ));
            }
        }
    }
    converted["metadata"] = Value::Object(restored);
    Ok(())
}

/// Validates labels or annotations, if they have changed.
fn check(field: &str, pairs: &Map<String, Value>, before: Option<&Value>) -> Result<(), String> {
    if let Some((key, value)) = pairs.iter().find(|(_, value)| !value.is_string()) {
        let found = go_type(value);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
    }
    let before = before.and_then(Value::as_object);
    if before.map_or(pairs.is_empty(), |before| before == pairs) {
        return Ok(());
    }
    let (mut errors, path) = (Errors::default(), Path::root("metadata"));
    let object = Value::Object(Map::from_iter([(field.to_owned(), Value::Object(pairs.clone()))]));
    match field {
        "labels" => labels::labels(&object, field, &path, &mut errors),
        // The field name in v1.34's message.
        _ => labels::annotations_at(&object, &path.child("annotation"), &mut errors),
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.to_string()) }
}

/// Returns Go's name of a decoded value's type.
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
