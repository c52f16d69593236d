//! The patches of mutating webhooks.

use serde_json::Value;

use super::call::Failure;
use super::response::{JSON_PATCH, ReviewResponse};
use crate::admission::attributes::VersionedAttributes;
use crate::patch::PatchError;
use crate::patch::json::Operations;
use crate::schema::FieldValidation;
use crate::schema::decode::TypeMismatch;

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
    let operations = Operations::parse(&answer.patch, FieldValidation::Ignore).map_err(undecodable)?;
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

/// Decodes the object as its kind. Unknown fields are dropped.
fn decode(attributes: &VersionedAttributes<'_>, object: Value) -> Result<Value, Failure> {
    let Some(target) = attributes.target() else { return Ok(object) };
    match target.decode_value(object, FieldValidation::Ignore) {
        Ok(decoded) => Ok(decoded.object),
        Err(TypeMismatch::Wrong(why)) => Err(Failure::internal(why)),
        Err(TypeMismatch::Strict(why)) => Err(Failure::internal(why.join(", "))),
    }
}
