//! The last-applied annotation of client-side apply, for objects that migrate to server-side apply.

use serde_json::Value;

use super::compare::Comparison;
use super::fields::fields_of;
use super::schema_node::SchemaNode;
use super::set::Set;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only manager for which the annotation is considered.
pub(super) const KUBECTL: &str = "kubectl";

/// Size limit for all annotations together; the annotation is dropped before that.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns the fields that client-side apply last set and that are unchanged. They can be taken over without a
/// conflict.
pub(super) fn own_fields(place: SchemaNode<'_>, live: &Value, api_version: &str) -> Option<Set> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let changed = Comparison::between(place, &applied, live);
    let own = fields_of(place, &applied);
    Some(own.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Updates the annotation if it exists and the manager is kubectl.
pub(super) fn update_annotation(object: &mut Value, configuration: &Value, manager: &str) {
    if manager != KUBECTL || annotation(object).is_none() {
        return;
    }
    let mut configuration = configuration.clone();
    if let Some(annotations) =
        configuration.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{configuration}\n");
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.insert(ANNOTATION.into(), text.into());
    let bytes: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if bytes > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}
