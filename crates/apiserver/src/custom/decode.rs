//! Decodes custom resources from request bodies and patch results.
//!
//! A custom resource is decoded by its own schema: unknown fields are dropped and reported, and metadata has the same
//! form as for all kinds; values of wrong types are left to validation.

use serde_json::Value;

use super::meta::{self, Malformed};
use super::props::Props;
use super::prune;
use crate::json::Json;
use crate::schema::decode::{DecodeFailure, Decoded, Format, TypeMismatch, strict_error};
use crate::schema::{FieldValidation, Target, number, untyped, yaml};

/// Decodes a body as a custom resource of the target's kind.
pub(crate) fn decode(
    target: &Target,
    schema: &Props,
    format: Format,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, DecodeFailure> {
    let (value, mut problems) = read(format, body).map_err(|why| target.unrecognized(&why, body))?;
    let stated = |field: &str| value.text(field).to_owned();
    let (kind, api_version) = (stated("kind"), stated("apiVersion"));
    for (field, text) in [("Kind", &kind), ("apiVersion", &api_version)] {
        if text.is_empty() {
            let why = format!("Object '{field}' is missing in '{}'", String::from_utf8_lossy(body));
            return Err(cannot_be_handled(target, &kind, &why));
        }
    }
    let mut object = value;
    let found =
        normalize(target, schema, &mut object).map_err(|why| cannot_be_handled(target, &kind, &why))?;
    problems.extend(found);
    if validation == FieldValidation::Strict && !problems.is_empty() {
        return Err(cannot_be_handled(target, &kind, &strict_error(&problems)));
    }
    if api_version != target.api_version() {
        let message = format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            target.api_version()
        );
        return Err(DecodeFailure { message });
    }
    Ok(Decoded { object, warnings: problems })
}

fn cannot_be_handled(target: &Target, kind: &str, why: &str) -> DecodeFailure {
    let kind = if kind.is_empty() { &target.kind } else { kind };
    DecodeFailure {
        message: format!(
            "{kind} in version {:?} cannot be handled as a {}: {why}",
            target.version, target.kind
        ),
    }
}

/// Parses the document, and returns its duplicate keys.
fn read(format: Format, body: &[u8]) -> Result<(Value, Vec<String>), String> {
    match format {
        Format::Json => {
            let parsed = untyped::parse(body)
                .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?;
            Ok((parsed.value, parsed.duplicates))
        }
        Format::Yaml => Ok((yaml::to_value(body)?, yaml::duplicate_keys(body))),
        Format::Protobuf => Err("custom resources have no protobuf form: send application/json".into()),
    }
}

/// Normalizes an object that resulted from a patch.
pub(crate) fn decode_value(
    target: &Target,
    schema: &Props,
    mut object: Value,
    validation: FieldValidation,
) -> Result<Decoded, TypeMismatch> {
    let problems = normalize(target, schema, &mut object).map_err(TypeMismatch::Wrong)?;
    if validation == FieldValidation::Strict && !problems.is_empty() {
        return Err(TypeMismatch::Strict(problems));
    }
    Ok(Decoded { object, warnings: problems })
}

/// Normalizes an applied object. Unknown fields and nulls stay until it is stored: they count for validation and for
/// the generation.
pub(crate) fn applied(mut object: Value) -> Result<Value, TypeMismatch> {
    number::normalize(&mut object);
    meta::normalize_metadata(&mut object, Malformed::Refused).map_err(TypeMismatch::Wrong)?;
    Ok(object)
}

/// Normalizes an object and returns the fields it lost. An object of another kind keeps its fields.
fn normalize(target: &Target, schema: &Props, object: &mut Value) -> Result<Vec<String>, String> {
    number::normalize(object);
    let mut unknown = meta::normalize_metadata(object, Malformed::Refused)?;
    let api_version = object.text("apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if group == target.group && object.text("kind") == target.kind {
        unknown.extend(prune::prune(object, schema, true));
        prune::prune_nulls(object, Some(schema));
        unknown.extend(meta::normalize_embedded(object, schema, Malformed::Refused)?);
    }
    Ok(unknown.into_iter().map(|path| format!("unknown field {path:?}")).collect())
}
