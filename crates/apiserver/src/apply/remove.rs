//! Removes fields from an object.

use serde_json::{Map, Value};

use super::element;
use super::schema_node::{Merging, SchemaNode};
use super::set::View;

/// Returns the value without the fields in `gone`; null if nothing is left.
pub(super) fn remove(place: SchemaNode<'_>, value: &Value, gone: View<'_>) -> Value {
    match (place.merging(), value) {
        (Merging::Struct(_) | Merging::Map, Value::Object(fields)) => {
            let left: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, value)| {
                    let left = remove_at(place.named(name), &element::field(name), value, gone)?;
                    Some((name.clone(), left))
                })
                .collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Merging::Items(list), Value::Array(items)) => {
            let left: Vec<Value> = items
                .iter()
                .filter_map(|item| match place.identify(list, item) {
                    Ok(element) => remove_at(place.item(list), &element, item, gone),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Merging::Whole | Merging::Map, value) if !value.is_object() && !value.is_array() => value.clone(),
        _ => Value::Null,
    }
}

fn remove_at(place: SchemaNode<'_>, element: &str, value: &Value, gone: View<'_>) -> Option<Value> {
    if gone.has(element) {
        return None;
    }
    Some(match gone.below(element) {
        Some(below) => remove(place, value, below),
        None => value.clone(),
    })
}
