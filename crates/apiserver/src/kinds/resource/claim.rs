//! The contents of a claim: device requests, constraints, and configuration. Shared by claims and claim templates.

use serde_json::Value;

use super::naming::{check_distinct, check_each, check_full_attribute_name};
use super::selector;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::names;
use crate::validation::{add_invalid, csi_driver_name, dns_label, dns_subdomain, qualified_name, too_long};

const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
pub(super) const MAX_CONFIGS: usize = 32;
pub(super) const MAX_SELECTORS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const PARAMETER_BYTES: usize = 10 << 10;
pub(super) const EFFECTS: [&str; 2] = ["NoExecute", "NoSchedule"];
const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Sets the default device count of requests.
pub(super) fn default(spec: &mut Value) {
    let Some(devices) = spec.at_mut("devices") else { return };
    for request in devices.list_mut("requests") {
        if let Some(exactly) = request.at_mut("exactly") {
            default_request(exactly);
        }
        for alternative in request.list_mut("firstAvailable") {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Value) {
    request.or_text("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.or_int("count", 1);
    }
    for toleration in request.list_mut("tolerations") {
        toleration.or_text("operator", "Equal");
    }
}

/// Drops consumable capacity, which v1.34 disables.
pub(super) fn drop_disabled(spec: &mut Value) {
    let Some(devices) = spec.at_mut("devices") else { return };
    for request in devices.list_mut("requests") {
        if let Some(exactly) = request.at_mut("exactly") {
            exactly.unset("capacity");
        }
        for alternative in request.list_mut("firstAvailable") {
            alternative.unset("capacity");
        }
    }
}

/// Whether the claim has a request, or an alternative in a request, with this name.
pub(super) fn has_request(spec: &Value, name: &str) -> bool {
    let (request, alternative) = name.split_once('/').map_or((name, None), |(a, b)| (a, Some(b)));
    let mut requests = spec.at("devices").list("requests").iter();
    requests.any(|candidate| {
        let mut alternatives = candidate.list("firstAvailable").iter().map(|sub| sub.text("name"));
        candidate.text("name") == request
            && alternative.is_none_or(|alternative| alternatives.any(|name| name == alternative))
    })
}

/// Validates a reference to a request in the claim.
pub(super) fn check_request_name(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.matches('/').count() > 1 {
        return errors.invalid(path, name, NOT_A_REQUEST);
    }
    for part in name.split('/') {
        dns_label(part, path, errors);
    }
    if !has_request(spec, name) {
        errors.invalid(path, name, NOT_A_REQUEST);
    }
}

/// Validates references to requests, which must be unique.
pub(super) fn check_request_names(spec: &Value, names: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let text = |name: &'_ Value| name.as_str().unwrap_or_default().to_owned();
    check_each(names, MAX_REQUESTS, path, errors, |name, path, errors| {
        check_request_name(spec, &text(name), path, errors);
    });
    check_distinct(names, "", |name| name.as_str().unwrap_or_default(), path, errors);
}

pub(super) fn check(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("devices");
    let devices = spec.at("devices");
    let requests = path.child("requests");
    check_each(devices.list("requests"), MAX_REQUESTS, &requests, errors, check_request);
    check_distinct(devices.list("requests"), "name", |request| request.text("name"), &requests, errors);
    let constraints = path.child("constraints");
    check_each(
        devices.list("constraints"),
        MAX_CONSTRAINTS,
        &constraints,
        errors,
        |constraint, path, errors| {
            check_constraint(spec, constraint, path, errors);
        },
    );
    check_each(devices.list("config"), MAX_CONFIGS, &path.child("config"), errors, |config, path, errors| {
        check_request_names(spec, config.list("requests"), &path.child("requests"), errors);
        check_configuration(config, path, errors);
    });
}

fn check_request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    dns_label(request.text("name"), &path.child("name"), errors);
    let alternatives = request.list("firstAvailable");
    let alternatives_path = path.child("firstAvailable");
    if !alternatives.is_empty() {
        check_each(
            alternatives,
            MAX_ALTERNATIVES,
            &alternatives_path,
            errors,
            |alternative, path, errors| {
                dns_label(alternative.text("name"), &path.child("name"), errors);
                check_devices(alternative, path, errors);
            },
        );
        check_distinct(alternatives, "name", |sub| sub.text("name"), &alternatives_path, errors);
    }
    if request.has("exactly") {
        check_devices(request.at("exactly"), &path.child("exactly"), errors);
    }
    let one_of = "exactly one of `exactly` or `firstAvailable` is required";
    match (alternatives.is_empty(), request.has("exactly")) {
        (true, false) => errors.required(path, one_of),
        (false, true) => errors.invalid(path, Value::Null, format!("{one_of}, but multiple fields are set")),
        _ => {}
    }
}

/// Validates which devices are requested, and how many.
fn check_devices(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    match request.text("deviceClassName") {
        "" => errors.required(&path.child("deviceClassName"), ""),
        class => dns_subdomain(class, &path.child("deviceClassName"), errors),
    }
    check_each(request.list("selectors"), MAX_SELECTORS, &path.child("selectors"), errors, selector::check);
    let (mode, count) = (request.text("allocationMode"), request.count("count"));
    match mode {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.invalid(&path.child("count"), count, detail);
        }
        "ExactCount" if count <= 0 => {
            errors.invalid(&path.child("count"), count, "must be greater than zero")
        }
        "All" | "ExactCount" => {}
        mode => errors.not_supported(&path.child("allocationMode"), mode, &["All", "ExactCount"]),
    }
    let tolerations = path.child("tolerations");
    for (index, toleration) in request.list("tolerations").iter().enumerate() {
        check_toleration(toleration, &tolerations.index(index), errors);
    }
}

fn check_toleration(toleration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (key, value, effect) = (toleration.text("key"), toleration.text("value"), toleration.text("effect"));
    if !key.is_empty() {
        qualified_name(key, &path.child("key"), errors);
    }
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(&path.child("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => add_invalid(names::label_value(value), value, &path.child("value"), errors),
        "" => errors.required(&path.child("operator"), ""),
        other => errors.not_supported(&path.child("operator"), other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, &EFFECTS);
    }
}

fn check_constraint(spec: &Value, constraint: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_request_names(spec, constraint.list("requests"), &path.child("requests"), errors);
    let fields = ["matchAttribute", "distinctAttribute"];
    match fields.iter().find_map(|field| Some((field, constraint.at(field).as_str()?))) {
        Some((field, name)) => check_full_attribute_name(name, &path.child(field), errors),
        None => errors.required(&path.child("matchAttribute"), ""),
    }
}

/// Validates the envelope of driver-specific configuration.
pub(super) fn check_configuration(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("opaque");
    if !config.has("opaque") {
        return errors.required(&path, "");
    }
    let opaque = config.at("opaque");
    csi_driver_name(opaque.text("driver"), &path.child("driver"), errors);
    check_raw(opaque.at("parameters"), PARAMETER_BYTES, &path.child("parameters"), errors);
}

/// Validates an opaque JSON object.
pub(super) fn check_raw(raw: &Value, limit: usize, path: &Path<'_>, errors: &mut Errors) {
    match raw {
        Value::Null => errors.required(path, ""),
        Value::Object(_) if raw.to_string().len() > limit => too_long(limit, path, errors),
        Value::Object(_) => {}
        _ => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}
