//! Object metadata: server-managed fields, and validation of client-provided ones.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use setpoint_clock::Uid;

use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::names;
use crate::status::Status;
use crate::strategy::NameRule;
use crate::validation::labels;

/// Finalizers that the garbage collector handles.
pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// Formats a timestamp as in objects: whole seconds, UTC.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns an object's metadata.
pub fn of(object: &Value) -> &Value {
    object.at("metadata")
}

/// Removes server-managed fields.
pub fn wipe_system_fields(object: &mut Value) {
    let metadata = object.object_mut("metadata");
    let fields = ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];
    for field in fields {
        metadata.unset(field);
    }
}

/// Sets the server-managed fields of a new object.
pub fn fill_system_fields(object: &mut Value, uid: Uid, now: Timestamp) {
    let metadata = object.object_mut("metadata");
    metadata.set("creationTimestamp", seconds(now));
    metadata.set("uid", uid.to_string());
}

/// Sets an object's namespace to that of the request; fails if it has another.
pub fn normalize_namespace(object: &mut Value, namespace: Option<&str>) -> Result<(), Status> {
    let metadata = object.object_mut("metadata");
    let found = metadata.text("namespace");
    match namespace {
        Some(namespace) if found.is_empty() => metadata.set("namespace", namespace),
        Some(namespace) if found != namespace => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Some(_) => {}
        None => _ = metadata.unset("namespace"),
    }
    Ok(())
}

/// Restores fields that an update cannot change.
pub fn carry_over(new: &mut Value, old: &Value) {
    let old = of(old);
    let metadata = new.object_mut("metadata");
    if metadata.text("uid").is_empty() {
        metadata.restore("uid", old);
    }
    if old.has("creationTimestamp") {
        metadata.restore("creationTimestamp", old);
    }
    if old.has("deletionTimestamp") {
        metadata.restore("deletionTimestamp", old);
    } else if !metadata.has("deletionTimestamp") {
        metadata.unset("deletionTimestamp");
    }
    if old.has("deletionGracePeriodSeconds") && !metadata.has("deletionGracePeriodSeconds") {
        metadata.restore("deletionGracePeriodSeconds", old);
    }
    metadata.unset("selfLink");
}

/// Maximum number of duplicate owners to name in a warning, which has room for about as many uids.
const MAX_REPEATED: usize = 100;

/// Removes duplicate owner references and returns their uids.
pub fn dedup_owner_references(object: &mut Value) -> Vec<String> {
    let Some(Value::Array(references)) = object.object_mut("metadata").at_mut("ownerReferences") else {
        return Vec::new();
    };
    let mut seen = BTreeSet::new();
    let mut repeated = Vec::new();
    references.retain(|reference| {
        // Objects are maps sorted by name, so equal ones have equal text.
        let is_new = seen.insert(reference.to_string());
        if !is_new && repeated.len() < MAX_REPEATED {
            repeated.push(reference.text("uid").to_string());
        }
        is_new
    });
    repeated
}

/// Returns an object's finalizers.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    of(object).list("finalizers").iter().filter_map(Value::as_str)
}

/// Validates an object's metadata.
pub fn validate(object: &Value, namespaced: bool, names: NameRule) -> Errors {
    let metadata = of(object);
    let path = Path::root("metadata");
    let mut errors = Errors::default();
    let generate_name = metadata.text("generateName");
    if !generate_name.is_empty() {
        for complaint in names.check(generate_name, true) {
            errors.invalid(&path.child("generateName"), generate_name, complaint);
        }
    }
    match metadata.text("name") {
        "" => errors.required(&path.child("name"), "name or generateName is required"),
        name => {
            for complaint in names.check(name, false) {
                errors.invalid(&path.child("name"), name, complaint);
            }
        }
    }
    validate_namespace(metadata.text("namespace"), namespaced, &path.child("namespace"), &mut errors);
    if metadata.count("generation") < 0 {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&path.child("generation"), metadata.count("generation"), detail);
    }
    validate_parts(metadata, &path, &mut errors);
    validate_finalizers(metadata, &path.child("finalizers"), &mut errors);
    errors
}

fn validate_namespace(namespace: &str, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    match (namespaced, namespace) {
        (true, "") => errors.required(path, ""),
        (true, namespace) => {
            for complaint in names::dns_label(namespace) {
                errors.invalid(path, namespace, complaint);
            }
        }
        (false, "") => {}
        (false, _) => errors.forbidden(path, "not allowed on this type"),
    }
}

/// Validates labels, annotations and owners on every write.
fn validate_parts(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels::labels(metadata, "labels", path, errors);
    labels::annotations(metadata, path, errors);
    validate_owners(metadata.list("ownerReferences"), &path.child("ownerReferences"), errors);
}

fn validate_owners(references: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut first_controller: Option<String> = None;
    for reference in references {
        validate_owner(reference, path, errors);
        if !reference.flag("controller") {
            continue;
        }
        let this = format!("{}/{}", reference.text("kind"), reference.text("name"));
        match &first_controller {
            // Each of these errors shows all references.
            Some(_) if errors.is_full() => return,
            Some(first) => {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {this}"
                );
                errors.invalid(path, Value::Array(references.to_vec()), detail);
            }
            None => first_controller = Some(this),
        }
    }
}

fn validate_owner(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let api_version = reference.text("apiVersion");
    let version = api_version.split_once('/').map_or(api_version, |(_, version)| version);
    if version.is_empty() {
        errors.invalid(&path.child("apiVersion"), api_version, "version must not be empty");
    }
    for field in ["kind", "name", "uid"] {
        if reference.text(field).is_empty() {
            errors.invalid(&path.child(field), "", "must not be empty");
        }
    }
    if api_version == "v1" && reference.text("kind") == "Event" {
        errors.invalid(path, reference.clone(), "/v1, Kind=Event is disallowed from being an owner");
    }
}

fn validate_finalizers(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let finalizers: Vec<&str> = metadata.list("finalizers").iter().filter_map(Value::as_str).collect();
    for finalizer in &finalizers {
        for complaint in names::qualified_name(finalizer) {
            errors.invalid(path, *finalizer, complaint);
        }
    }
    if finalizers.contains(&FOREGROUND) && finalizers.contains(&ORPHAN) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid(path, Value::from(finalizers), detail);
    }
}

/// Validates a change to metadata.
pub fn validate_update(new: &Value, old: &Value) -> Errors {
    let (new, old) = (of(new), of(old));
    let path = Path::root("metadata");
    let mut errors = Errors::default();
    if old.has("deletionTimestamp") {
        validate_no_new_finalizers(new, old, &path.child("finalizers"), &mut errors);
    }
    if new.text("resourceVersion").is_empty() {
        errors.invalid(&path.child("resourceVersion"), "", "must be specified for an update");
    }
    if new.count("generation") < old.count("generation") {
        errors.invalid(&path.child("generation"), new.count("generation"), "must not be decremented");
    }
    let immutable =
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in immutable {
        if new.at(field) != old.at(field) {
            errors.invalid(&path.child(field), new.at(field).clone(), "field is immutable");
        }
    }
    validate_parts(new, &path, &mut errors);
    errors
}

fn validate_no_new_finalizers(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let set = |metadata: &Value| -> BTreeSet<String> {
        metadata.list("finalizers").iter().filter_map(Value::as_str).map(Into::into).collect()
    };
    let added: Vec<String> = set(new).difference(&set(old)).map(|name| format!("{name:?}")).collect();
    if !added.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.forbidden(path, detail);
    }
}
