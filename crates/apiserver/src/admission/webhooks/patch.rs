//! The patches of mutating webhooks.

use serde_json::Value;

use super::call::Failure;
use super::response::{JSON_PATCH, ReviewResponse};
use crate::admission::attributes::VersionedAttributes;
use crate::json::Json;
use crate::patch::PatchError;
use crate::patch::json::Operations;
use crate::schema::FieldValidation;
use crate::schema::decode::TypeMismatch;
use crate::schema::{go, untyped};

/// A patched object, in the version that the webhook was sent.
pub(super) struct Patched {
    pub(super) object: Value,
    /// Whether the object changed.
    pub(super) is_changed: bool,
    /// The patch, for the audit log.
    pub(super) patch: Value,
}

/// Applies the patch of a response, if there is one.
pub(super) fn apply(
    answer: &ReviewResponse,
    attributes: &VersionedAttributes<'_>,
    webhook: &str,
) -> Result<Option<Patched>, Failure> {
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let undecodable = |why: PatchError| {
        Failure::calling(format!("received undecodable patch in webhook response: {why}"), 503)
    };
    let operations = decode_patch(&answer.patch).map_err(undecodable)?;
    if operations.is_empty() {
        return Ok(None);
    }
    if attributes.object.is_null() {
        return Err(Failure::internal(format_args!(
            "admission webhook {webhook:?} attempted to modify the object, which is not supported for this operation"
        )));
    }
    if answer.patch_type != JSON_PATCH {
        return Err(Failure::calling(format!("unsupported patch type {:?}", answer.patch_type), 400));
    }
    let patched = operations.apply(attributes.object.clone()).map_err(Failure::internal)?;
    let before = decode(attributes, attributes.object.clone())?;
    let mut object = decode(attributes, patched)?;
    let is_changed = object != before;
    attributes.default(&mut object);
    let patch = serde_json::from_slice(&answer.patch).unwrap_or_default();
    Ok(Some(Patched { object, is_changed, patch }))
}

/// Decodes a patch. The type names in errors are those of v1.34's decoder for these patches.
fn decode_patch(patch: &[u8]) -> Result<Operations, PatchError> {
    let value = untyped::parse(patch).map_err(PatchError::BadRequest)?.value;
    let wrong = |found: &Value, of: &str| {
        let found = go::kind_of(found);
        PatchError::BadRequest(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{of}"))
    };
    let is_other = |item: &&Value| !item.is_object() && !item.is_null();
    match &value {
        Value::Array(items) => match items.iter().find(is_other) {
            Some(item) => Err(wrong(item, "Operation")),
            None => Operations::of(value),
        },
        Value::Null => Operations::of(value),
        other => Err(wrong(other, "Patch")),
    }
}

/// Decodes the object as its kind. Unknown fields are dropped, except those of custom resources: as in v1.34, other
/// webhooks see them.
fn decode(attributes: &VersionedAttributes<'_>, object: Value) -> Result<Value, Failure> {
    let Some(target) = attributes.target() else { return Ok(object) };
    if target.custom.is_some() {
        return match object.text("kind") {
            "" => Err(Failure::internal(format_args!("Object 'Kind' is missing in '{object}'"))),
            _ => Ok(object),
        };
    }
    match target.decode_value(object, FieldValidation::Ignore) {
        Ok(decoded) => Ok(decoded.object),
        Err(TypeMismatch::Wrong(why)) => Err(Failure::internal(why)),
        Err(TypeMismatch::Strict(why)) => Err(Failure::internal(why.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undecodable_patch_is_described_as_in_v1_34() {
        for (patch, expected) in [
            ("{}", Some("json: cannot unmarshal object into Go value of type jsonpatch.Patch")),
            ("[1]", Some("json: cannot unmarshal number into Go value of type jsonpatch.Operation")),
            ("[", Some("unexpected end of JSON input")),
            ("[]", None),
            ("null", None),
        ] {
            let why = decode_patch(patch.as_bytes()).err().map(|why| why.to_string());
            assert_eq!(why.as_deref(), expected, "{patch}");
        }
    }
}
