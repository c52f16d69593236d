//! Validates environment variables and their sources.

use serde_json::Value;

use super::Scope;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;
use crate::quantity::Quantity;
use crate::validation::{add_invalid, qualified_name, words};

/// Pod fields that a variable can use.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Pod fields that a file can use.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// All fields with a name for such references, whether or not they can be used everywhere.
const KNOWN_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The consumer of a reference to a pod field or a container resource.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Referrer {
    Variable,
    File,
}

impl Scope<'_> {
    pub(super) fn check_env(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let variables = path.child("env");
        for (index, variable) in container.list("env").iter().enumerate() {
            let path = variables.index(index);
            match variable.text("name") {
                "" => errors.required(&path.child("name"), ""),
                name => add_invalid(words::env_name(name), name, &path.child("name"), errors),
            }
            check_value_from(variable, &path.child("valueFrom"), errors);
        }
        let sources = path.child("envFrom");
        for (index, source) in container.list("envFrom").iter().enumerate() {
            check_env_from(source, &sources, index, errors);
        }
    }
}

fn check_value_from(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let from = variable.at("valueFrom");
    if from.is_null() {
        return;
    }
    let mut sources = 0;
    let mut check = |field: &str, rule: fn(&Value, &Path<'_>, &mut Errors)| {
        if from.has(field) {
            sources += 1;
            rule(from.at(field), &path.child(field), errors);
        }
    };
    check("fieldRef", |source, path, errors| check_field(source, Referrer::Variable, path, errors));
    check("resourceFieldRef", |source, path, errors| {
        check_resource(source, Referrer::Variable, path, errors)
    });
    check("configMapKeyRef", check_key);
    check("secretKeyRef", check_key);
    let detail = match (sources, variable.text("value")) {
        (0, _) => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        (1, "") => return,
        (_, "") => "may not have more than one field specified at a time",
        _ => "may not be specified when `value` is not empty",
    };
    errors.invalid(path, "", detail);
}

fn check_env_from(source: &Value, path: &Path<'_>, index: usize, errors: &mut Errors) {
    let here = path.index(index);
    let prefix = source.text("prefix");
    if !prefix.is_empty() {
        add_invalid(words::env_name(prefix), prefix, &here.child("prefix"), errors);
    }
    let mut sources = 0;
    for field in ["configMapRef", "secretRef"] {
        if !source.has(field) {
            continue;
        }
        sources += 1;
        let path = here.child(field);
        match source.at(field).text("name") {
            "" => errors.required(&path.child("name"), ""),
            name => {
                let rule = crate::strategy::NameRule::Subdomain;
                add_invalid(rule.check(name, true), name, &path.child("name"), errors);
            }
        }
    }
    match sources {
        0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
}

/// Validates a reference to a key of a ConfigMap or Secret.
fn check_key(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = source.text("name");
    add_invalid(names::dns_subdomain(name), name, &path.child("name"), errors);
    match source.text("key") {
        "" => errors.required(&path.child("key"), ""),
        key => add_invalid(words::config_key(key), key, &path.child("key"), errors),
    }
}

/// Validates a reference to a pod field: `metadata.name`, `metadata.labels['app']`.
pub(super) fn check_field(source: &Value, by: Referrer, path: &Path<'_>, errors: &mut Errors) {
    let (version, label) = (source.text("apiVersion"), source.text("fieldPath"));
    if version.is_empty() {
        return errors.required(&path.child("apiVersion"), "");
    }
    if label.is_empty() {
        return errors.required(&path.child("fieldPath"), "");
    }
    let subscripted = split_subscript(label);
    let unknown = match subscripted {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {label}")),
        None if KNOWN_FIELDS.contains(&label) || label == "spec.host" => None,
        None => Some(format!("field label not supported: {label}")),
    };
    if let Some(why) = unknown {
        return errors.invalid(&path.child("fieldPath"), label, format!("error converting fieldPath: {why}"));
    }
    match subscripted {
        Some(("metadata.annotations", key)) => qualified_name(&key.to_lowercase(), path, errors),
        Some((_, key)) => qualified_name(key, path, errors),
        None => {
            let label = if label == "spec.host" { "spec.nodeName" } else { label };
            let supported: &[&str] = if by == Referrer::Variable { &VARIABLE_FIELDS } else { &FILE_FIELDS };
            if !supported.contains(&label) {
                errors.not_supported(&path.child("fieldPath"), label, supported);
            }
        }
    }
}

/// Splits `metadata.labels['app']` into `metadata.labels` and `app`.
fn split_subscript(label: &str) -> Option<(&str, &str)> {
    let (field, key) = label.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// Validates a reference to a container resource.
pub(super) fn check_resource(source: &Value, by: Referrer, path: &Path<'_>, errors: &mut Errors) {
    let resource = source.text("resource");
    let is_pages = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if by == Referrer::File && source.text("containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_pages {
        errors.not_supported(&path.child("resource"), resource, &RESOURCES);
    }
    let divisor = Quantity::of(source.at("divisor")).unwrap_or(Quantity::ZERO);
    if divisor.is_zero() {
        return;
    }
    let (supported, listed, what): (&[&str], &str, &str) = match resource.split_once('.') {
        Some((_, "cpu")) => (&["1m", "1"], "1m and 1", "cpu"),
        Some((_, "memory")) => (&SIZES, "", "memory"),
        Some((_, "ephemeral-storage")) => (&SIZES, "", "local ephemeral storage"),
        _ if is_pages => (&SIZES, "", "hugepages"),
        _ => return,
    };
    if !supported.contains(&divisor.to_string().as_str()) {
        let listed = if listed.is_empty() { SIZES.join(", ") } else { listed.to_owned() };
        let detail = format!("only divisor's values {listed} are supported with the {what} resource");
        errors.invalid(&path.child("divisor"), resource, detail);
    }
}
