//! Patches: RFC 6902, RFC 7386 and strategic merge, as v1.34's API server applies and rejects them.
//!
//! [`apply`] covers everything from a stored object and a request's body to the new object, checked against its
//! schema. A patch that fails changes nothing.

mod go_print;
pub mod json;
pub mod merge;
mod order;
pub mod strategic;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::field::{FieldError, Reason};
use crate::schema::convert::convert;
use crate::schema::decode::{TypeMismatch, normalize, strict_error};
use crate::schema::untyped::{self, Untyped};
use crate::schema::{Decoded, FieldValidation, Target, go};

use go_print::GoPrint;

/// The patch types that [`apply`] supports; server-side apply is separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl PatchKind {
    /// Parses the media type of a request, without parameters.
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// Why a patch was rejected, by its response.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// 400, reason BadRequest, with this message.
    #[error("{0}")]
    BadRequest(String),
    /// 413, reason RequestEntityTooLarge; the message follows `Request entity too large: `.
    #[error("{0}")]
    TooLarge(String),
    /// 422, reason Invalid, empty details, and the message
    /// `the server rejected our request due to an error in our request`; this text is for the log.
    #[error("{0}")]
    Unprocessable(String),
    /// 422, reason Invalid, without kind and name (` "" is invalid: patch: …`), with this one cause.
    #[error("{}", .0.detail)]
    Invalid(FieldError),
    /// 500 without a reason, with this message.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unprocessable(_) | Self::Invalid(_) => 422,
            Self::Internal(_) => 500,
        }
    }

    fn invalid(shown: String, detail: String) -> Self {
        let value = Some(Value::String(shown));
        Self::Invalid(FieldError { reason: Reason::Invalid, field: "patch".into(), value, detail })
    }
}

/// Applies `patch` to `current`, and returns the object in its stored form.
pub fn apply(
    kind: PatchKind,
    target: &Target,
    current: &Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, PatchError> {
    match kind {
        PatchKind::Json => {
            let operations = json::Operations::parse(patch, validation)?;
            let patched = || operations.apply(current.clone());
            finish(target, patched, operations.problems.clone(), validation)
        }
        PatchKind::Merge => {
            let Untyped { value, duplicates } = merge::parse(patch, validation)?;
            let patched = || merge::apply(current.clone(), value.clone());
            finish(target, patched, duplicates, validation)
        }
        PatchKind::Strategic => apply_strategic(target, current, patch, validation),
    }
}

fn apply_strategic(
    target: &Target,
    current: &Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, PatchError> {
    let Untyped { value: patch, duplicates } = object_of(patch).map_err(PatchError::BadRequest)?;
    let (patched, mut untouched) = merged(target, current, &patch)?;
    let mut decoded = normalize(&target.schema, patched, validation);
    if let Err(TypeMismatch::Wrong(_)) = decoded {
        // This is rare, so merging again is acceptable.
        let mut patched;
        (patched, untouched) = merged(target, current, &patch)?;
        decoded = convert(&target.schema, &mut patched)
            .map_err(TypeMismatch::Wrong)
            .and_then(|()| normalize(&target.schema, patched, validation));
    }
    if let Ok(Decoded { object: Value::Object(fields), .. }) = &mut decoded {
        fields.extend(untouched);
    }
    settle(decoded, duplicates, validation, || GoPrint(&patch).to_string())
}

/// Applies a strategic merge patch. Returns the fields it may have changed, and the rest.
fn merged(
    target: &Target,
    current: &Value,
    patch: &Value,
) -> Result<(Value, Map<String, Value>), PatchError> {
    let mut patched = strategic::apply(&target.schema, current.clone(), patch.clone())?;
    if let Some(fields) = patched.as_object_mut() {
        fields.insert("apiVersion".into(), target.api_version().into());
        fields.insert("kind".into(), target.kind.clone().into());
    }
    let untouched = take_untouched(&mut patched, patch);
    Ok((patched, untouched))
}

/// Takes out the fields that a patch does not mention: they are as stored and need not be checked again. For a status
/// patch this is most of the object.
fn take_untouched(patched: &mut Value, patch: &Value) -> Map<String, Value> {
    let (Value::Object(fields), Value::Object(patch)) = (patched, patch) else { return Map::new() };
    // A directive applies to the object as a whole.
    if patch.keys().any(|key| key.starts_with('$')) {
        return Map::new();
    }
    let is_named = |key: &str| matches!(key, "apiVersion" | "kind") || patch.contains_key(key);
    let (touched, untouched) = std::mem::take(fields).into_iter().partition(|(key, _)| is_named(key));
    *fields = touched;
    untouched
}

/// Decodes the result. A JSON or merge patch may change the object's kind; errors are then about that kind. Most
/// patches succeed, so a failed one is applied again for the message.
fn finish(
    target: &Target,
    patched: impl Fn() -> Result<Value, PatchError>,
    problems: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded, PatchError> {
    let decoded = target.decode_value(patched()?, validation);
    settle(decoded, problems, validation, || patched().unwrap_or_default().to_string())
}

/// Combines the problems in the patch and in its result.
fn settle(
    result: Result<Decoded, TypeMismatch>,
    mut problems: Vec<String>,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<Decoded, PatchError> {
    let strict = validation == FieldValidation::Strict;
    match result {
        Err(TypeMismatch::Wrong(why)) => Err(PatchError::invalid(shown(), why)),
        Err(TypeMismatch::Strict(found)) => {
            problems.extend(found);
            Err(PatchError::invalid(shown(), strict_error(&problems)))
        }
        Ok(_) if strict && !problems.is_empty() => Err(PatchError::invalid(shown(), strict_error(&problems))),
        Ok(decoded) if validation == FieldValidation::Ignore => {
            Ok(Decoded { warnings: Vec::new(), ..decoded })
        }
        Ok(decoded) => {
            problems.extend(decoded.warnings);
            Ok(Decoded { object: decoded.object, warnings: problems })
        }
    }
}

/// Parses a merge patch of either type: an object, or null.
fn object_of(patch: &[u8]) -> Result<Untyped, String> {
    let parsed = untyped::parse(patch)?;
    match &parsed.value {
        Value::Object(_) | Value::Null => Ok(parsed),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::kind_of(other)
        )),
    }
}
