//! Patches.

use http::{Response, StatusCode};
use serde_json::Value;

use super::update::{self, UpdatedObjectInfo};
use super::{Call, respond};
use crate::body::Body;
use crate::field::Errors;
use crate::metadata;
use crate::negotiate;
use crate::options::{OptionsOf, WriteOptions};
use crate::patch::{self, PatchError, PatchKind};
use crate::schema::{FieldValidation, Target};
use crate::status::{Named, Status};

/// The patch types that custom resources support.
const CUSTOM_PATCHES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// Returns a request's patch type.
pub(crate) fn kind(call: &Call<'_>) -> Result<PatchKind, Status> {
    let media_type = negotiate::media_type(call.headers);
    let kind = PatchKind::of_media_type(media_type).ok_or_else(Status::unsupported_patch_type)?;
    // The scale of a custom resource is a built-in kind.
    let is_custom = call.served.kind.custom.is_some();
    if is_custom && kind == PatchKind::Strategic {
        return Err(Status::unsupported_media_type(CUSTOM_PATCHES));
    }
    Ok(kind)
}

pub(crate) async fn patch(call: &Call<'_>) -> Result<Response<Body>, Status> {
    if super::apply::is_apply(call) {
        return super::apply::apply(call).await;
    }
    let kind = kind(call)?;
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Patch { apply: false })?;
    call.context.audit.request_patch(call.body);
    let mut maker = Patched { call, kind, name, validation: options.field_validation };
    let (outcome, _) = update::apply(call, name, &options, &mut maker).await?;
    respond::outcome(call, StatusCode::OK, outcome).await
}

/// Applies a patch to the current state.
struct Patched<'a> {
    call: &'a Call<'a>,
    kind: PatchKind,
    name: &'a str,
    validation: FieldValidation,
}

impl UpdatedObjectInfo for Patched<'_> {
    fn make(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let current = current.ok_or_else(|| self.call.not_found(self.name))?;
        let served = self.call.served;
        let mut object = apply(self.call, self.kind, &served.target, current, self.validation)?;
        served.kind.strategy.default(&mut object);
        metadata::normalize_namespace(&mut object, self.call.namespace)?;
        update::check_name(&object, self.name)?;
        Ok(object)
    }

    /// Whether the patch may refer to managed fields. A JSON patch may refer to any field, the other types only to
    /// fields they name. A name may contain escapes.
    fn sees_managed_fields(&self) -> bool {
        let body = &self.call.body;
        let has = |word: &[u8]| body.windows(word.len()).any(|window| window == word);
        self.kind == PatchKind::Json || has(b"managedFields") || has(b"\\u")
    }
}

/// Applies the patch in a request's body.
pub(crate) fn apply(
    call: &Call<'_>,
    kind: PatchKind,
    target: &Target,
    current: &Value,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let patched = patch::apply(kind, target, current, call.body, validation).map_err(refusal)?;
    for warning in patched.warnings {
        call.context.warnings.add(warning);
    }
    Ok(patched.object)
}

fn refusal(error: PatchError) -> Status {
    match error {
        PatchError::BadRequest(message) => Status::bad_request(message),
        PatchError::TooLarge(message) => Status::too_large(message),
        PatchError::Unprocessable(why) => {
            tracing::debug!(why, "a patch does not apply");
            Status::unprocessable("the server rejected our request due to an error in our request")
        }
        PatchError::Invalid(error) => Status::invalid(Named::default(), "", &Errors::from(vec![error])),
        PatchError::Internal(message) => Status::unknown(message),
    }
}
