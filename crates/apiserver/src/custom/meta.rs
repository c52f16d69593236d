//! Metadata of custom resources and embedded resources: always in the standard form, whatever the schema says.

use serde_json::{Map, Value};

use super::props::Props;
use crate::field::{Errors, MAX_ERRORS, Path, shown_path};
use crate::json::Json;
use crate::metadata;
use crate::names;
use crate::schema::decode::{TypeMismatch, normalize};
use crate::schema::{FieldValidation, Schema};
use crate::strategy::NameRule;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The treatment of malformed metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Refused,
    /// Drops malformed fields: for stored objects.
    Dropped,
}

/// Normalizes a resource's metadata and returns the paths of its unknown fields.
pub(crate) fn normalize_metadata(object: &mut Value, malformed: Malformed) -> Result<Vec<String>, String> {
    match object.get_mut("metadata") {
        Some(metadata) => settled(metadata, malformed),
        None => Ok(Vec::new()),
    }
}

fn settled(metadata: &mut Value, malformed: Malformed) -> Result<Vec<String>, String> {
    let schema = Schema::built_in(OBJECT_META).ok_or("no schema of ObjectMeta")?;
    match normalize(&schema, std::mem::take(metadata), FieldValidation::Warn) {
        Ok(decoded) => {
            *metadata = decoded.object;
            Ok(decoded.warnings.iter().filter_map(|warning| unknown_path(warning)).collect())
        }
        Err(TypeMismatch::Wrong(why)) if malformed == Malformed::Refused => Err(why),
        Err(_) => {
            *metadata = Value::Object(Map::new());
            Ok(Vec::new())
        }
    }
}

/// Normalizes stored metadata, dropping malformed fields.
pub(crate) fn normalize_stored(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata") else { return };
    let before = metadata.clone();
    if settled(metadata, Malformed::Refused).is_ok() {
        return;
    }
    let fields = before.as_object().cloned().unwrap_or_default();
    let well_formed = fields.into_iter().filter_map(|(name, value)| {
        let mut one = Value::Object(Map::from_iter([(name.clone(), value)]));
        settled(&mut one, Malformed::Refused).ok()?;
        Some((name.clone(), one.as_object_mut()?.remove(&name)?))
    });
    *metadata = Value::Object(well_formed.collect());
}

/// Drops labels and annotations without entries, as v1.34's encoding of metadata does.
pub(crate) fn drop_empty(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for field in ["labels", "annotations"] {
        if metadata.get(field).and_then(Value::as_object).is_some_and(Map::is_empty) {
            metadata.remove(field);
        }
    }
}

/// Converts `unknown field "a"` to `metadata.a`.
fn unknown_path(warning: &str) -> Option<String> {
    let path = warning.strip_prefix("unknown field \"")?.strip_suffix('"')?;
    Some(format!("metadata.{path}"))
}

/// Normalizes the metadata of embedded resources and returns the paths of unknown fields. Fails at the first malformed
/// one.
pub(crate) fn normalize_embedded(
    value: &mut Value,
    schema: &Props,
    malformed: Malformed,
) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    embedded(value, schema, "", malformed, false, &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

/// Like [`normalize_embedded`], for a value that is itself a resource.
pub(super) fn normalize_resource(
    value: &mut Value,
    schema: &Props,
    path: &str,
    malformed: Malformed,
) -> Result<(), String> {
    embedded(value, schema, path, malformed, true, &mut Vec::new())
}

fn embedded(
    value: &mut Value,
    schema: &Props,
    path: &str,
    malformed: Malformed,
    is_resource: bool,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let path = shown_path(path);
    match value {
        Value::Object(_) => {
            if is_resource {
                embedded_meta(value, path, malformed, unknown)?;
            }
            let Value::Object(fields) = value else { return Ok(()) };
            for (name, value) in fields {
                let path = match schema.properties.contains_key(name) {
                    true => child(path, name),
                    false => format!("{path}[{name}]"),
                };
                if let Some(below) = schema.field(name) {
                    embedded(value, below, &path, malformed, below.embedded_resource, unknown)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.item() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                let path = format!("{path}[{index}]");
                embedded(item, below, &path, malformed, below.embedded_resource, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn embedded_meta(
    value: &mut Value,
    path: &str,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    for field in ["apiVersion", "kind"] {
        let Some(found) = value.get(field).filter(|found| !found.is_string()) else { continue };
        if malformed == Malformed::Refused {
            return Err(format!("{}: Invalid value: {found}: must be a string", child(path, field)));
        }
        if let Some(fields) = value.as_object_mut() {
            fields.remove(field);
        }
    }
    let before = value.get("metadata").cloned().unwrap_or_default();
    let found = normalize_metadata(value, malformed)
        .map_err(|why| format!("{}: Invalid value: {before}: {why}", child(path, "metadata")))?;
    let room = MAX_ERRORS.saturating_sub(unknown.len());
    unknown.extend(found.iter().take(room).map(|found| child(path, found)));
    Ok(())
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Validates the kinds, versions and metadata of embedded resources.
pub(crate) fn validate_embedded(
    value: &Value,
    schema: &Props,
    path: &str,
    is_resource: bool,
    errors: &mut Errors,
) {
    let path = shown_path(path);
    match value {
        Value::Object(fields) => {
            if is_resource {
                validate_resource(value, path, errors);
            }
            for (name, value) in fields {
                let Some(below) = schema.field(name) else { continue };
                let path = match schema.properties.contains_key(name) {
                    true => child(path, name),
                    false => format!("{path}[{name}]"),
                };
                validate_embedded(value, below, &path, below.embedded_resource, errors);
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.item() else { return };
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                validate_embedded(item, below, &path, below.embedded_resource, errors);
            }
        }
        _ => {}
    }
}

fn validate_resource(resource: &Value, path: &str, errors: &mut Errors) {
    for field in ["apiVersion", "kind"] {
        let at = child(path, field);
        let at = Path::root(&at);
        match resource.get(field) {
            None => errors.required(&at, ""),
            Some(Value::String(text)) if text.is_empty() => errors.invalid(&at, "", "must not be empty"),
            Some(Value::String(text)) if field == "apiVersion" && text.matches('/').count() > 1 => {
                errors.invalid(&at, text.as_str(), format!("unexpected GroupVersion string: {text}"));
            }
            Some(Value::String(text)) if field == "kind" => validate_kind(text, &at, errors),
            Some(Value::String(_)) => {}
            Some(other) => errors.invalid(&at, other.clone(), "must be a string"),
        }
    }
    let Some(meta) = resource.map("metadata") else { return };
    let mut meta = Value::Object(meta.clone());
    if meta.text("name").is_empty() {
        meta["name"] = "fakename".into();
    }
    let is_namespaced = !meta.text("namespace").is_empty();
    let found =
        metadata::validate(&serde_json::json!({ "metadata": meta }), is_namespaced, NameRule::PathSegment);
    for mut error in found.0 {
        error.field = child(path, &error.field);
        errors.0.push(error);
    }
}

/// Checks that a kind is a label, except that upper case is allowed.
pub(crate) fn validate_kind(kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::dns_1035_label(&kind.to_lowercase());
    if !complaints.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
        errors.invalid(path, kind, detail);
    }
}
