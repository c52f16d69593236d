//! CustomResourceDefinitions between `v1` and `v1beta1`, in which v1.34 stores them because it is shorter: what all
//! versions have in common is stated once.

use serde_json::{Map, Value};

/// The fields of a version, as named in `v1`, and their names above all versions in `v1beta1`.
const COMMON: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("schema", "validation"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];
/// The name of a column's path in `v1` and in `v1beta1`.
const COLUMN_PATH: (&str, &str) = ("jsonPath", "JSONPath");
const COLUMNS: &str = "additionalPrinterColumns";

/// In `v1beta1`, unset means true.
const PRESERVE: &str = "preserveUnknownFields";

pub(super) fn to_v1beta1(definition: &mut Value) {
    let Some(spec) = spec_of(definition) else { return };
    spec.entry(PRESERVE).or_insert(Value::Bool(false));
    let mut versions = versions_of(spec);
    if let Some(name) = versions.first().and_then(|version| version.get("name")) {
        spec.insert("version".into(), name.clone());
    }
    for (inside, above) in COMMON {
        let Some(first) = versions.first().map(|version| version.get(inside).cloned()) else { break };
        if versions.iter().all(|version| version.get(inside) == first.as_ref()) {
            versions.iter_mut().for_each(|version| _ = version.remove(inside));
            if let Some(first) = first {
                spec.insert(above.into(), first);
            }
        }
    }
    put_versions(spec, versions);
    rename_column_paths(spec, COLUMN_PATH.0, COLUMN_PATH.1);
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
        && let Some(Value::Object(webhook)) = conversion.remove("webhook")
    {
        for (name, value) in webhook {
            let name = if name == "clientConfig" { "webhookClientConfig".to_owned() } else { name };
            conversion.insert(name, value);
        }
    }
}

pub(super) fn to_v1(definition: &mut Value) {
    let Some(spec) = spec_of(definition) else { return };
    match spec.get(PRESERVE) {
        Some(Value::Bool(false)) => _ = spec.remove(PRESERVE),
        _ => _ = spec.insert(PRESERVE.into(), true.into()),
    }
    let mut versions = versions_of(spec);
    if let Some(Value::String(name)) = spec.remove("version").filter(|_| versions.is_empty()) {
        let only = [("name", name.into()), ("served", true.into()), ("storage", true.into())];
        versions
            .push(only.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect());
    }
    for (inside, above) in COMMON {
        if let Some(common) = spec.remove(above).filter(|common| !common.is_null()) {
            for version in &mut versions {
                version.insert(inside.into(), common.clone());
            }
        }
    }
    put_versions(spec, versions);
    rename_column_paths(spec, COLUMN_PATH.1, COLUMN_PATH.0);
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let client = conversion.remove("webhookClientConfig").map(|config| ("clientConfig", config));
        let review = conversion.remove("conversionReviewVersions");
        let review = review.map(|versions| ("conversionReviewVersions", versions));
        let webhook: Map<String, Value> =
            client.into_iter().chain(review).map(|(name, value)| (name.to_owned(), value)).collect();
        if !webhook.is_empty() {
            conversion.insert("webhook".into(), webhook.into());
        }
    }
}

fn spec_of(definition: &mut Value) -> Option<&mut Map<String, Value>> {
    definition.get_mut("spec")?.as_object_mut()
}

fn versions_of(spec: &mut Map<String, Value>) -> Vec<Map<String, Value>> {
    let versions = match spec.remove("versions") {
        Some(Value::Array(versions)) => versions,
        _ => Vec::new(),
    };
    let as_object = |version| match version {
        Value::Object(version) => Some(version),
        _ => None,
    };
    versions.into_iter().filter_map(as_object).collect()
}

fn put_versions(spec: &mut Map<String, Value>, versions: Vec<Map<String, Value>>) {
    if !versions.is_empty() {
        spec.insert("versions".into(), versions.into_iter().map(Value::Object).collect());
    }
}

/// Renames the path of every column, above all versions and in each.
fn rename_column_paths(spec: &mut Map<String, Value>, from: &str, to: &str) {
    rename_in_columns(spec, from, to);
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(version) = version.as_object_mut() {
            rename_in_columns(version, from, to);
        }
    }
}

fn rename_in_columns(of: &mut Map<String, Value>, from: &str, to: &str) {
    let columns = of.get_mut(COLUMNS).and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.insert(to.into(), path);
        }
    }
}
