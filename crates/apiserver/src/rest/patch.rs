//! Partial changes.

use http::{Response, StatusCode};
use serde_json::Value;

use super::update::{self, Maker};
use super::{Call, respond};
use crate::body::Body;
use crate::metadata;
use crate::negotiate;
use crate::options::{OptionsOf, WriteOptions};
use crate::status::Status;

const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
     application/strategic-merge-patch+json, application/apply-patch+yaml";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
}

impl PatchType {
    pub(crate) fn of(call: &Call<'_>) -> Result<Self, Status> {
        match negotiate::media_type(call.headers) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            _ => Err(Status::unsupported_media_type(PATCH_TYPES)),
        }
    }
}

pub(crate) async fn patch(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let patch_type = PatchType::of(call)?;
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Patch { apply: false })?;
    let mut maker = Patched { call, patch_type, name };
    let (outcome, _) = update::apply(call, name, &options, &mut maker).await?;
    respond::outcome(call, StatusCode::OK, outcome)
}

/// What a patch makes of the current state.
struct Patched<'a> {
    call: &'a Call<'a>,
    patch_type: PatchType,
    name: &'a str,
}

impl Maker for Patched<'_> {
    fn make(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let current = current.ok_or_else(|| self.call.not_found(self.name))?;
        let mut object = apply(self.call, self.patch_type, current)?;
        self.call.served.kind.strategy.default(&mut object);
        metadata::settle_namespace(&mut object, self.call.namespace)?;
        update::check_name(&object, self.name)?;
        Ok(object)
    }
}

fn apply(call: &Call<'_>, patch_type: PatchType, current: &Value) -> Result<Value, Status> {
    let bad = |why: serde_json::Error| Status::bad_request(format!("error decoding patch: {why}"));
    let mut object = current.clone();
    match patch_type {
        PatchType::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(call.body).map_err(bad)?;
            json_patch::patch(&mut object, &patch).map_err(|why| Status::unprocessable(why.to_string()))?;
        }
        PatchType::Merge | PatchType::Strategic => {
            let patch: Value = serde_json::from_slice(call.body).map_err(bad)?;
            json_patch::merge(&mut object, &patch);
        }
    }
    Ok(object)
}
