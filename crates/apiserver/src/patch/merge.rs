//! JSON merge patches (RFC 7386), with v1.34's two deviations: nulls are pruned from everything that is added,
//! including objects within lists, and a null patch is rejected.

use serde_json::{Map, Value};

use crate::schema::FieldValidation;
use crate::schema::untyped::Untyped;

use super::{PatchError, object_of};

/// Parses a merge patch.
pub(super) fn parse(patch: &[u8], validation: FieldValidation) -> Result<Untyped, PatchError> {
    object_of(patch).map_err(|why| match validation {
        FieldValidation::Ignore => PatchError::BadRequest("Invalid JSON Patch".to_owned()),
        _ => PatchError::BadRequest(format!("error decoding patch: {why}")),
    })
}

/// Applies `patch` to `document`.
pub fn apply(document: Value, patch: Value) -> Result<Value, PatchError> {
    match (document, patch) {
        (Value::Object(mut fields), Value::Object(changes)) => {
            merge(&mut fields, changes);
            Ok(Value::Object(fields))
        }
        (_, Value::Null) => Err(PatchError::BadRequest("Invalid JSON Patch".to_owned())),
        (_, mut replacement) => {
            prune_nulls(&mut replacement);
            Ok(replacement)
        }
    }
}

fn merge(fields: &mut Map<String, Value>, changes: Map<String, Value>) {
    for (key, change) in changes {
        match (fields.get_mut(&key), change) {
            (_, Value::Null) => _ = fields.remove(&key),
            (Some(Value::Object(current)), Value::Object(changes)) => merge(current, changes),
            (Some(current @ Value::Object(_)), other) => *current = other,
            (_, mut added) => {
                prune_nulls(&mut added);
                fields.insert(key, added);
            }
        }
    }
}

/// Removes null fields at any depth; null list items are kept.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}
