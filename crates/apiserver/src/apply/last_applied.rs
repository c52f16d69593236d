//! The annotation of client-side apply, for objects that move on to server-side apply.

use serde_json::Value;

use super::compare::Comparison;
use super::fields::fields_of;
use super::place::Place;
use super::set::Set;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only manager that the annotation is looked at for.
pub(super) const KUBECTL: &str = "kubectl";

/// All annotations together may be this long; the annotation is given up before that.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// The fields that were last applied by the client and are as it left them. They may be taken without a
/// conflict.
pub(super) fn own_fields(place: Place<'_>, live: &Value, api_version: &str) -> Option<Set> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let changed = Comparison::between(place, &applied, live);
    let own = fields_of(place, &applied);
    Some(own.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Brings the annotation up to date where it is there and kubectl applies.
pub(super) fn keep_in_step(object: &mut Value, configuration: &Value, manager: &str) {
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
