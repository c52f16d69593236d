//! Validates autoscalers.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::json::Json;
use crate::quantity::Quantity;
use crate::validation::{
    NOT_POSITIVE, dns_label, nonnegative_field, optional_choice, path_segment, resources,
};

/// An hour, and half an hour.
const MAX_WINDOW: i64 = 3600;
const MAX_PERIOD: i64 = 1800;
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// The required form of a reference's version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Any,
    WellFormed,
    WithGroup,
}

/// Validates an autoscaler's spec; `old` is null for a new one.
pub(super) fn check_spec(spec: &Value, old: &Value, to_zero: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let (min, max) = (spec.int("minReplicas"), spec.count("maxReplicas"));
    let lowest = if to_zero || old.int("minReplicas") == Some(0) { 0 } else { 1 };
    if let Some(min) = min.filter(|min| *min < lowest) {
        let detail = format!("must be greater than or equal to {lowest}");
        errors.invalid(&path.child("minReplicas"), min, detail);
    }
    if max < 1 {
        errors.invalid(&path.child("maxReplicas"), max, "must be greater than 0");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&path.child("maxReplicas"), max, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef");
    check_reference(target, target_version(target, old), &path.child("scaleTargetRef"), errors);
    check_metrics(spec, described_version(old), &path.child("metrics"), errors);
    let behavior = path.child("behavior");
    for rules in ["scaleUp", "scaleDown"] {
        check_rules(spec.at("behavior").at(rules), &behavior.child(rules), errors);
    }
}

/// Returns the required form of a target's version. An unchanged target may be invalid. Only one core kind can be
/// scaled.
fn target_version(target: &Value, old: &Value) -> Version {
    let old_target = old.at("scaleTargetRef");
    let stays = ["apiVersion", "kind"].iter().all(|field| target.text(field) == old_target.text(field));
    match target.text("kind") {
        _ if !old.is_null() && stays => Version::Any,
        "ReplicationController" => Version::WellFormed,
        _ => Version::WithGroup,
    }
}

fn described_version(old: &Value) -> Version {
    let objects = old.list("metrics").iter().filter(|metric| metric.text("type") == "Object");
    let mut described = objects.map(|metric| metric.at("object").at("describedObject"));
    match described.any(|object| version_complaint(object, Version::WellFormed).is_some()) {
        true => Version::Any,
        false => Version::WellFormed,
    }
}

fn version_complaint(reference: &Value, version: Version) -> Option<String> {
    let text = reference.text("apiVersion");
    let slashes = text.matches('/').count();
    match version {
        Version::Any => None,
        _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {text}")),
        Version::WithGroup if slashes == 0 || text.starts_with('/') => {
            Some("apiVersion must specify API group".into())
        }
        _ => None,
    }
}

fn check_reference(reference: &Value, version: Version, path: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        match reference.text(field) {
            "" => errors.required(&path.child(field), ""),
            text => path_segment(text, &path.child(field), errors),
        }
    }
    if let Some(complaint) = version_complaint(reference, version) {
        errors.invalid(&path.child("apiVersion"), reference.text("apiVersion"), complaint);
    }
}

fn check_metrics(spec: &Value, described: Version, path: &Path<'_>, errors: &mut Errors) {
    let metrics = spec.list("metrics");
    for (index, metric) in metrics.iter().enumerate() {
        check_metric(metric, described, &path.index(index), errors);
    }
    let outside = |metric: &Value| matches!(metric.text("type"), "Object" | "External");
    if spec.int("minReplicas") == Some(0) && !metrics.iter().any(outside) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, detail);
    }
}

/// Checks that a metric has exactly the field for its type.
fn check_metric(metric: &Value, described: Version, path: &Path<'_>, errors: &mut Errors) {
    let of = metric.text("type");
    let types = SOURCES.map(|(of, _)| of);
    let expected = SOURCES.iter().find(|(known, _)| *known == of).map(|(_, field)| *field);
    if of.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    if expected.is_none() {
        errors.not_supported(&path.child("type"), of, &types);
    }
    let in_order = ["object", "external", "pods", "resource", "containerResource"];
    let present: Vec<&str> = in_order.into_iter().filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        check_source(first, metric.at(first), described, &path.child(first), errors);
    }
    match expected {
        Some(field) if !metric.has(field) => {
            let detail = "must populate information for the given metric source";
            errors.required(&path.child(field), detail);
        }
        Some(_) => {}
        None => errors.not_supported(&path.child("type"), of, &types),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(&path.child(field), "must populate the given metric source only");
        }
    }
}

fn check_source(field: &str, source: &Value, described: Version, path: &Path<'_>, errors: &mut Errors) {
    if field == "object" {
        check_reference(source.at("describedObject"), described, &path.child("describedObject"), errors);
    }
    match field {
        "resource" => {
            if source.text("name").is_empty() {
                errors.required(&path.child("name"), "must specify a resource name");
            }
        }
        "containerResource" => check_container(source, path, errors),
        _ => check_identifier(source.at("metric"), &path.child("metric"), errors),
    }
    let target_path = path.child("target");
    let target = source.at("target");
    check_target(target, &target_path, errors);
    check_amounts(field, target, &target_path, errors);
}

fn check_container(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match source.text("name") {
        "" => errors.required(&path.child("name"), "must specify a resource name"),
        name => resources::container_name(name, &path.child("name"), errors),
    }
    match source.text("container") {
        "" => errors.required(&path.child("container"), "must specify a container"),
        container => dns_label(container, &path.child("container"), errors),
    }
}

fn check_identifier(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    match metric.text("name") {
        "" => errors.required(&path.child("name"), "must specify a metric name"),
        name => path_segment(name, &path.child("name"), errors),
    }
}

fn check_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of = target.text("type");
    if of.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(of, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&path.child("type"), of, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if Quantity::of(target.at(field)).is_ok_and(|amount| amount.sign() <= 0) {
            errors.invalid(&path.child(field), target.at(field).clone(), "must be positive");
        }
    }
    if let Some(percent) = target.int("averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&path.child("averageUtilization"), percent, "must be greater than 0");
    }
}

/// Validates which amounts a target of this source has, and which exclude each other.
fn check_amounts(field: &str, target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let has = |amount: &str| target.has(amount);
    let average = path.child("averageValue");
    match field {
        "object" if !has("value") && !has("averageValue") => {
            errors.required(&average, "must set either a target value or averageValue");
        }
        "external" if !has("value") && !has("averageValue") => {
            errors.required(&average, "must set either a target value for metric or a per-pod target");
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&path.child("value"), detail);
        }
        "pods" if !has("averageValue") => {
            errors.required(&average, "must specify a positive target averageValue");
        }
        "resource" | "containerResource" => match (has("averageUtilization"), has("averageValue")) {
            (false, false) => {
                let detail = "must set either a target raw value or a target utilization";
                errors.required(&path.child("averageUtilization"), detail);
            }
            (true, true) => {
                errors.forbidden(&average, "may not set both a target raw value and a target utilization");
            }
            _ => {}
        },
        _ => {}
    }
}

fn check_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    if rules.is_null() {
        return;
    }
    let window = rules.count("stabilizationWindowSeconds");
    let window_path = path.child("stabilizationWindowSeconds");
    if window < 0 {
        errors.invalid(&window_path, window, "must be greater than or equal to zero");
    }
    if window > MAX_WINDOW {
        errors.invalid(&window_path, window, format!("must be less than or equal to {MAX_WINDOW}"));
    }
    optional_choice(rules, "selectPolicy", &["Disabled", "Max", "Min"], path, errors);
    let policies = path.child("policies");
    if rules.list("policies").is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").iter().enumerate() {
        check_policy(policy, &policies.index(index), errors);
    }
    if let Ok(tolerance) = Quantity::of(rules.at("tolerance"))
        && tolerance.sign() < 0
    {
        errors.invalid(&path.child("tolerance"), tolerance.to_string(), crate::validation::NEGATIVE);
    }
}

fn check_policy(policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of = policy.text("type");
    if !matches!(of, "Pods" | "Percent") {
        errors.not_supported(&path.child("type"), of, &["Percent", "Pods"]);
    }
    let (value, period) = (policy.count("value"), policy.count("periodSeconds"));
    let period_path = path.child("periodSeconds");
    if value <= 0 {
        errors.invalid(&path.child("value"), value, NOT_POSITIVE);
    }
    if period <= 0 {
        errors.invalid(&period_path, period, NOT_POSITIVE);
    }
    if period > MAX_PERIOD {
        errors.invalid(&period_path, period, format!("must be less than or equal to {MAX_PERIOD}"));
    }
}

pub(super) fn check_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    nonnegative_field(status, "currentReplicas", &path, errors);
    nonnegative_field(status, "desiredReplicas", &path, errors);
}
