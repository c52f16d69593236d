//! Validates claims and their updates.

use serde_json::Value;

use super::CLASS_ANNOTATION;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kinds::resources::{amount, amounts};
use crate::names;
use crate::quantity::Quantity;
use crate::validation::labels::{self, Values};
use crate::validation::{
    IMMUTABLE, add_invalid, difference, dns_label, dns_subdomain, immutable, optional_choice, resources,
};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Rules to relax for an existing claim that violates them.
#[derive(Clone, Copy)]
pub(in crate::kinds) struct Leniency {
    selector_values: Values,
    api_groups: bool,
}

impl Leniency {
    pub(in crate::kinds) const NONE: Self = Self { selector_values: Values::Checked, api_groups: false };

    pub(super) fn towards(old: &Value) -> Self {
        let spec = old.at("spec");
        let selector_values = match labels::has_bad_values(spec.at("selector")) {
            true => Values::Unchecked,
            false => Values::Checked,
        };
        let grouped = |source: &str| spec.at(source).has("apiGroup");
        Self { selector_values, api_groups: grouped("dataSource") || grouped("dataSourceRef") }
    }
}

pub(in crate::kinds) fn check_spec(spec: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    if spec.list("accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    labels::selector(spec.at("selector"), leniency.selector_values, &path.child("selector"), errors);
    check_access_modes(spec, &path.child("accessModes"), errors);
    check_storage(spec, &path.child("resources").key("storage"), errors);
    check_class_name(spec, "storageClassName", path, errors);
    optional_choice(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
    check_sources(spec, leniency, path, errors);
    check_class_name(spec, "volumeAttributesClassName", path, errors);
}

pub(in crate::kinds) fn check_access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes: Vec<&str> = spec.list("accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(path, *mode, &ACCESS_MODES);
    }
    let shared = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && shared {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn check_storage(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(storage) = amount(spec.at("resources").at("requests"), "storage") else {
        return errors.required(path, "");
    };
    match storage.sign() > 0 {
        true => resources::quantity("storage", &storage, path, errors),
        false => resources::positive_quantity(&storage, path, errors),
    }
}

pub(in crate::kinds) fn check_class_name(spec: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let name = spec.text(field);
    if !name.is_empty() {
        add_invalid(names::dns_subdomain(name), name, &path.child(field), errors);
    }
}

fn check_sources(spec: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for (field, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if !source.is_null() {
            check_source(source, leniency, &path.child(field), errors);
        }
    }
    let foreign = !reference.text("namespace").is_empty();
    if source.is_null() || reference.is_null() && !foreign {
        return;
    }
    let same = ["apiGroup", "kind", "name"].iter().all(|field| source.at(field) == reference.at(field));
    let detail = match foreign {
        true => "may not be specified when dataSourceRef.namespace is specified",
        false if !same => "must match dataSourceRef",
        false => return,
    };
    errors.invalid(path, path.child("dataSource").to_string(), detail);
}

fn check_source(source: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    for field in ["name", "kind"] {
        crate::validation::required(source, field, path, errors);
    }
    let (group, kind) = (source.text("apiGroup"), source.text("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() && !leniency.api_groups {
        dns_subdomain(group, &path.child("apiGroup"), errors);
    }
    let namespace = source.text("namespace");
    if !namespace.is_empty() {
        dns_label(namespace, &path.child("namespace"), errors);
    }
}

/// Validates an update. Claims are mostly immutable, except for the size and class of a bound claim, and for values
/// that were not yet set.
pub(super) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let (new_spec, old_spec) = (new.at("spec"), old.at("spec"));
    let expected = expected_spec(new, old, errors);
    if expected != *old_spec {
        let difference = difference("PersistentVolumeClaimSpec", old_spec, &expected);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"
        );
        errors.forbidden(&path, detail);
    }
    let storage = |list: &Value| amount(list, "storage").unwrap_or(Quantity::ZERO);
    let size = |spec: &Value| storage(spec.at("resources").at("requests"));
    let shrunk = size(new_spec) < size(old_spec);
    if shrunk && size(new_spec) <= storage(old.at("status").at("capacity")) {
        let path = path.child("resources");
        let path = path.child("requests");
        errors.forbidden(&path.child("storage"), "field can not be less than status.capacity");
    }
    immutable(new_spec.at("volumeMode"), old_spec.at("volumeMode"), &Path::root("volumeMode"), errors);
    check_attributes_class(new_spec, old, &path.child("volumeAttributesClassName"), errors);
}

/// Returns the new spec with all mutable fields restored: remaining differences are errors.
fn expected_spec(new: &Value, old: &Value, errors: &mut Errors) -> Value {
    let old_spec = old.at("spec");
    let mut expected = new.at("spec").clone();
    if old_spec.text("volumeName").is_empty() {
        expected.restore("volumeName", old_spec);
    }
    let annotation = |claim: &Value| claim.at("metadata").at("annotations").at(CLASS_ANNOTATION).clone();
    let (new_class, old_class) = (new.at("spec").at("storageClassName"), old_spec.at("storageClassName"));
    let (new_annotation, old_annotation) = (annotation(new), annotation(old));
    let moves_from_annotation = old_annotation.is_string()
        && old_class.is_null()
        && *new_class == old_annotation
        && (new_annotation.is_null() || new_annotation == old_annotation);
    if moves_from_annotation {
        expected.unset("storageClassName");
    } else {
        if new_annotation.as_str().unwrap_or_default() != old_annotation.as_str().unwrap_or_default() {
            let path = Path::root("metadata");
            let path = path.child("annotations");
            let value = new_annotation.as_str().unwrap_or_default();
            errors.invalid(&path.child(CLASS_ANNOTATION), value, IMMUTABLE);
        }
        let is_assigned = !new_class.is_null() && old_class.is_null();
        if is_assigned && (old_annotation.is_null() || *new_class == old_annotation) {
            expected.unset("storageClassName");
        }
    }
    if new.at("status").text("phase") == "Bound" {
        if let Some(requests) =
            expected.at_mut("resources").and_then(|resources| resources.at_mut("requests"))
        {
            requests.restore("storage", old_spec.at("resources").at("requests"));
        }
        expected.restore("volumeAttributesClassName", old_spec);
    }
    expected
}

/// Checks that an applied volume attributes class is not removed.
fn check_attributes_class(new_spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = new_spec.at("volumeAttributesClassName");
    let applied = old.at("status").has("currentVolumeAttributesClassName");
    if !applied || class == old.at("spec").at("volumeAttributesClassName") {
        return;
    }
    let what = match class.as_str() {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let detail =
        format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.forbidden(path, detail);
}

pub(super) fn check_status(claim: &Value, errors: &mut Errors) {
    if claim.at("spec").list("accessModes").is_empty() {
        errors.required(&Path::root("Spec").child("accessModes"), "");
    }
    let status = claim.at("status");
    let path = Path::root("status");
    let capacity = path.child("capacity");
    for (resource, amount) in amounts(status.at("capacity")) {
        resources::basic_quantity(&amount, &capacity.key(resource), errors);
    }
    let statuses = path.child("allocatedResourceStatuses");
    for (resource, value) in status.map("allocatedResourceStatuses").into_iter().flatten() {
        check_resource_key(resource, &statuses, errors);
        if !value.as_str().is_some_and(|value| RESIZE_STATUSES.contains(&value)) {
            errors.not_supported(&statuses, resource.as_str(), &RESIZE_STATUSES);
        }
    }
    let allocated = path.child("allocatedResources");
    for (resource, amount) in amounts(status.at("allocatedResources")) {
        let before = errors.0.len();
        check_resource_key(resource, &allocated, errors);
        if errors.0.len() == before {
            resources::basic_quantity(&amount, &allocated.key(resource), errors);
        }
        if errors.0.len() == before {
            resources::quantity("storage", &amount, &allocated.key(resource), errors);
        }
    }
}

/// Checks that storage is the only built-in resource in a claim.
fn check_resource_key(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::qualified_name(resource);
    if complaints.is_empty() && resources::is_native(resource) && resource != "storage" {
        errors.not_supported(path, resource, &["storage"]);
    }
    add_invalid(complaints, resource, path, errors);
}
