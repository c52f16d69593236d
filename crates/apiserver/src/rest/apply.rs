//! Server-side apply.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::update::{self, UpdatedObjectInfo};
use super::{Call, ownership, respond};
use crate::apply::{self, ApplyError};
use crate::body::Body;
use crate::custom::decode;
use crate::json::Json;
use crate::metadata;
use crate::negotiate;
use crate::options::{OptionsOf, WriteOptions};
use crate::schema::{FieldValidation, go, yaml};
use crate::status::{Cause, Status};

const MEDIA_TYPE: &str = "application/apply-patch+yaml";

pub(crate) fn is_apply(call: &Call<'_>) -> bool {
    negotiate::media_type(call.headers) == MEDIA_TYPE
}

pub(crate) async fn apply(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Patch { apply: true })?;
    call.context.audit.request_patch(call.body);
    let configuration = configuration(call)?;
    let mut maker = Applied { call, name, configuration, validation: options.field_validation };
    let (outcome, created) = update::apply(call, name, &options, &mut maker).await?;
    let code = if created { StatusCode::CREATED } else { StatusCode::OK };
    respond::outcome(call, code, outcome).await
}

/// Decodes the applied configuration from a request's body.
pub(crate) fn configuration(call: &Call<'_>) -> Result<Value, Status> {
    let bad = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    match yaml::to_value(call.body).map_err(bad)? {
        configuration @ Value::Object(_) => Ok(configuration),
        other => Err(bad(format!(
            "error unmarshaling JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::kind_of(&other)
        ))),
    }
}

/// Applies a configuration to the current state.
struct Applied<'a> {
    call: &'a Call<'a>,
    name: &'a str,
    configuration: Value,
    validation: FieldValidation,
}

impl UpdatedObjectInfo for Applied<'_> {
    fn make(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let call = self.call;
        let merged = merge(call, current, &self.configuration)?;
        check_duplicates(call, self.validation)?;
        let mut object = typed(call, merged)?;
        call.served.kind.strategy.default(&mut object);
        metadata::normalize_namespace(&mut object, call.namespace)?;
        update::check_name(&object, self.name)?;
        if current.is_none() {
            refuse_uid(call, self.name, &object)?;
        }
        Ok(object)
    }

    fn is_apply(&self) -> bool {
        true
    }
}

/// Merges a configuration of the served kind into the current state.
pub(crate) fn merge(
    call: &Call<'_>,
    current: Option<&Value>,
    configuration: &Value,
) -> Result<Value, Status> {
    let (manager, force) = (ownership::manager(call), call.query.flag("force").unwrap_or(false));
    ownership::at(call, |endpoint| apply::apply(endpoint, current, configuration, &manager, force, call.now))
        .map_err(refusal)
}

/// Converts the merged state to the form that objects are stored in.
fn typed(call: &Call<'_>, merged: Value) -> Result<Value, Status> {
    if call.served.kind.custom.is_some() {
        let failed = |misfit| Status::unknown(format!("failed to convert new object: {misfit}"));
        return decode::applied(merged).map_err(failed);
    }
    let target = &call.served.target;
    let named =
        json!({"metadata": {"namespace": merged.at("metadata").text("namespace"), "name": call.name}});
    let decoded = target.decode_value(merged, FieldValidation::Ignore);
    decoded
        .map(|decoded| decoded.object)
        .map_err(|misfit| Status::unknown(apply::unconvertible(target, &named, &misfit.to_string())))
}

/// Rejects, or warns about, duplicate keys in the body.
fn check_duplicates(call: &Call<'_>, validation: FieldValidation) -> Result<(), Status> {
    if validation == FieldValidation::Ignore {
        return Ok(());
    }
    for duplicate in yaml::duplicate_keys(call.body) {
        if validation == FieldValidation::Strict {
            return Err(Status::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {duplicate}"
            )));
        }
        yaml::warnings(&duplicate).for_each(|line| call.context.warnings.add(line));
    }
    Ok(())
}

/// Rejects a uid if the object does not exist: there is nothing it could match.
fn refuse_uid(call: &Call<'_>, name: &str, object: &Value) -> Result<(), Status> {
    let uid = metadata::of(object).get("uid").and_then(Value::as_str).unwrap_or_default();
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Status::conflict(call.served.named(), name, why))
}

pub(crate) fn refusal(error: ApplyError) -> Status {
    match error {
        ApplyError::BadRequest(message) => Status::bad_request(message),
        ApplyError::Internal(message) => Status::unknown(message),
        ApplyError::Conflict(conflicts) => {
            let mut status = Status::apply_conflict(conflicts.to_string());
            for conflict in conflicts.0 {
                let (message, field) = (conflict.message(), conflict.field);
                status.add_cause(Cause { reason: "FieldManagerConflict".into(), message, field });
            }
            status
        }
    }
}
