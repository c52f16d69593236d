//! Applies a mutation to an object.
//!
//! Both kinds of patches are bounded: expressions are short, but their values share parts and can be huge.

use serde_json::{Map, Value};

use super::compiled::Patch;
use crate::admission::attributes::VersionedAttributes;
use crate::apply;
use crate::cel::{JSON_PATCH, JsonLimit, Message, Val};
use crate::json::Json;
use crate::patch::PatchError;
use crate::patch::json::Operations;
use crate::schema::FieldValidation;
use crate::schema::decode::TypeMismatch;
use crate::status::Status;

/// The maximum size of a patch, and of an object after it: that of a request body.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Why a mutation was not applied.
#[derive(Debug)]
pub(super) enum Failure {
    /// The failure policy decides what follows.
    Failed(String),
    /// The request is rejected regardless of the failure policy.
    Refused(Box<Status>),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Applies the value of an expression.
pub(super) fn apply(patch: Patch, value: &Val, about: &VersionedAttributes<'_>) -> Result<Value, Failure> {
    let object = match patch {
        Patch::Json => json_patch(value, about)?,
        Patch::Apply => apply_configuration(value, about)?,
    };
    // A mutation may extend what the previous one added.
    let size = object.to_string().len();
    match size <= MAX_BYTES {
        true => Ok(object),
        false => Err(format!("the object would have {size} bytes, the limit is {MAX_BYTES}").into()),
    }
}

fn json_patch(value: &Val, about: &VersionedAttributes<'_>) -> Result<Value, Failure> {
    let Val::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned().into());
    };
    let failed = |why: PatchError| format!("JSON Patch: {why}");
    Operations::check_count(list.items.len()).map_err(failed)?;
    let mut limit = JsonLimit::new(MAX_BYTES);
    let operations = list.items.iter().map(|item| operation(item, &mut limit));
    let operations = Value::Array(operations.collect::<Result<_, _>>()?);
    let operations = Operations::of(operations).map_err(failed)?;
    let patched = operations.try_apply(about.object.clone()).map_err(|why| format!("JSON Patch: {why}"))?;
    // A patch whose test fails is skipped without an error.
    let Some(patched) = patched else { return Ok(about.object.clone()) };
    let decoded = decode(about, patched, FieldValidation::Strict);
    let mut object = decoded.map_err(|why| Failure::Refused(Box::new(Status::internal(why))))?;
    about.default(&mut object);
    Ok(object)
}

/// Converts an operation from CEL.
fn operation(item: &Val, limit: &mut JsonLimit) -> Result<Value, String> {
    let Val::Message(message) = item else {
        return Err(not_an_operation(item));
    };
    if &*message.name != JSON_PATCH {
        return Err(not_an_operation(item));
    }
    let mut operation = Map::new();
    for field in ["op", "path", "from"] {
        let text = message.string(field);
        if field != "from" || !text.is_empty() {
            let json = limit.text(text).map_err(|why| format!("JSONPatch {field}: {why}"))?;
            operation.insert(field.into(), json);
        }
    }
    if let Some(value) = message.fields.get("value") {
        let json = limit.convert_as_proto(value).map_err(|why| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
        })?;
        if let Val::Message(object) = value {
            check_places(object)?;
        }
        operation.insert("value".into(), json);
    }
    Ok(Value::Object(operation))
}

fn not_an_operation(item: &Val) -> String {
    format!(
        "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {}",
        item.type_name()
    )
}

/// Checks that types are named after the fields they are in. The message has been converted before, which bounds it.
fn check_places(message: &Message) -> Result<(), String> {
    match message.misplaced() {
        errors if errors.is_empty() => Ok(()),
        errors => Err(format!("type mismatch: {}", errors.join("\n"))),
    }
}

fn apply_configuration(value: &Val, about: &VersionedAttributes<'_>) -> Result<Value, Failure> {
    let Val::Message(message) = value else {
        let ty = value.type_name();
        return Err(format!("unsupported return type from ApplyConfiguration expression: {ty}").into());
    };
    let mut configuration = JsonLimit::new(MAX_BYTES).convert(value)?;
    check_places(message)?;
    let failed = |why: String| Failure::Failed(format!("error applying patch: {why}"));
    let (api_version, kind) = about.shown_type();
    let Some(target) = about.merge_target() else {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let why = format!(
            "failed to convert patch object to typed object: no corresponding type for {group}/{version}, Kind={kind}"
        );
        return Err(failed(why));
    };
    if let Value::Object(fields) = &mut configuration {
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), kind.into());
    }
    let merged = apply::merge_configuration(&target, &about.object, &configuration).map_err(failed)?;
    let mut object = decode(about, merged, FieldValidation::Ignore)?;
    about.default(&mut object);
    Ok(object)
}

/// The object in the form of its kind.
fn decode(
    about: &VersionedAttributes<'_>,
    object: Value,
    validation: FieldValidation,
) -> Result<Value, String> {
    let Some(target) = about.target() else { return Ok(object) };
    // As in v1.34, pruning happens after the last policy, so other policies see unknown fields.
    if target.custom.is_some() {
        return match object.text("kind") {
            "" => Err(format!("Object 'Kind' is missing in '{object}'")),
            _ => Ok(object),
        };
    }
    match target.decode_value(object, validation) {
        Ok(decoded) => Ok(decoded.object),
        Err(TypeMismatch::Wrong(why)) => Err(why.to_string()),
        Err(TypeMismatch::Strict(why)) => Err(format!("strict decoding error: {}", why.join(", "))),
    }
}
