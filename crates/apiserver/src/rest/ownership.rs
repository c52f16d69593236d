//! Who owns which fields: what writes note in `metadata.managedFields`.
//!
//! Objects that users make are kept track of from the start, those that the control plane makes for itself
//! from the first time that somebody applies to them. Once an object is kept track of, every write to it is.

use http::header::USER_AGENT;
use serde_json::{Map, Value};

use super::Call;
use crate::apply::{self, Endpoint, Resets};

/// Service accounts are users of the control plane, not parts of it.
const SERVICE_ACCOUNTS: &str = "system:serviceaccount:";

/// Runs `note` with the endpoint of a call.
pub(crate) fn at<T>(call: &Call<'_>, note: impl FnOnce(&Endpoint<'_>) -> T) -> T {
    let resets = Resets::of(&call.served.kind, call.subresource);
    let subresource = call.subresource.map_or("", |subresource| subresource.name());
    note(&Endpoint { target: &call.served.target, subresource, resets: &resets })
}

/// Who makes the change.
pub(crate) fn manager(call: &Call<'_>) -> String {
    let user_agent = call.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let user_agent = user_agent.unwrap_or_default();
    apply::manager_name(call.query.get("fieldManager").unwrap_or(""), &user_agent)
}

/// Notes who owns the fields of a new object.
pub(crate) fn note_create(call: &Call<'_>, object: &mut Value) {
    if is_kept_track_of(call) {
        at(call, |endpoint| apply::update(endpoint, None, object, &manager(call), call.now));
    }
}

fn is_kept_track_of(call: &Call<'_>) -> bool {
    let name = call.user.name.as_str();
    let is_control_plane = name.starts_with("system:") && !name.starts_with(SERVICE_ACCOUNTS);
    !is_control_plane || call.query.get("fieldManager").is_some()
}

/// Notes who owns the fields that a change touches.
pub(crate) fn note_update(call: &Call<'_>, old: &Value, new: &mut Value) {
    at(call, |endpoint| apply::update(endpoint, Some(old), new, &manager(call), call.now));
}

/// Sets aside what was noted, from what restores metadata.
pub(crate) fn set_aside(object: &mut Value) -> Option<Value> {
    metadata(object)?.remove("managedFields")
}

/// Puts back what was set aside.
pub(crate) fn put_back(object: &mut Value, noted: Option<Value>) {
    let Some(metadata) = metadata(object) else { return };
    match noted {
        Some(noted) => _ = metadata.insert("managedFields".into(), noted),
        None => _ = metadata.remove("managedFields"),
    }
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}
