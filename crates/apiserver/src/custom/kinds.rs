//! Builds the kinds of a CRD.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::columns;
use super::conversion::ConversionWebhook;
use super::jsonpath::JsonPath;
use super::names::is_true;
use super::props::Props;
use super::scale::ScalePaths;
use super::strategy::CustomStrategy;
use super::{Custom, Selectable, Versions, shape};
use crate::json::Json;
use crate::kind::{Deprecation, Kind, Scope, Subresource, Verb};
use crate::metadata;
use crate::schema::Schema;
use crate::strategy::{Initial, Presentation, Preserved, Semantics, StatusEndpoint};
use crate::table::Column;

/// In discovery order.
const VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

/// Returns the kinds of an established CRD: one for each served version.
pub(super) fn of(definition: &Value, closing: &CancellationToken) -> Vec<Kind> {
    if !is_true(definition, "Established") {
        return Vec::new();
    }
    let spec = definition.at("spec");
    let group = spec.text("group");
    let api_version = |version: &Value| format!("{group}/{}", version.text("name"));
    let schema = |version: &Value| {
        let schema = version.at("schema").at("openAPIV3Schema");
        Arc::new(Props::parse(schema).unwrap_or_default().for_objects())
    };
    let all = spec.list("versions");
    let schemas: BTreeMap<_, _> = all.iter().map(|version| (api_version(version), schema(version))).collect();
    let storage = all.iter().find(|version| version.flag("storage")).map(api_version).unwrap_or_default();
    let name = metadata::of(definition).text("name");
    let webhook = ConversionWebhook::of(name, spec.at("conversion"));
    let types = match webhook {
        Some(_) => types(definition, &schemas),
        None => BTreeMap::new(),
    };
    let shared = Shared { versions: Arc::new(Versions { storage, schemas, types }), webhook, closing };
    let served = all.iter().filter(|version| version.flag("served"));
    served.map(|version| kind(definition, version, &shared)).collect()
}

/// What the kinds of a CRD have in common.
struct Shared<'a> {
    versions: Arc<Versions>,
    webhook: Option<Arc<ConversionWebhook>>,
    closing: &'a CancellationToken,
}

/// Returns the types of all versions, and whether they have a status subresource.
fn types(definition: &Value, schemas: &BTreeMap<String, Arc<Props>>) -> BTreeMap<String, (Schema, bool)> {
    let (spec, names) = (definition.at("spec"), definition.at("status").at("acceptedNames"));
    let of = |version: &Value| {
        let (group, name) = (spec.text("group"), version.text("name"));
        let api_version = format!("{group}/{name}");
        let schema = schemas.get(&api_version)?;
        let types = shape::of_resource(&schema_name(group, name, names.text("kind")), schema);
        Some((api_version, (types, version.at("subresources").has("status"))))
    };
    spec.list("versions").iter().filter_map(of).collect()
}

fn kind(definition: &Value, version: &Value, shared: &Shared<'_>) -> Kind {
    let (spec, names) = (definition.at("spec"), definition.at("status").at("acceptedNames"));
    let (group, name) = (spec.text("group"), version.text("name"));
    let api_version = format!("{group}/{name}");
    let schema = shared.versions.schemas.get(&api_version).cloned().unwrap_or_default();
    let schema_name = schema_name(group, name, names.text("kind"));
    let subresources = version.at("subresources");
    let scale = ScalePaths::of(subresources.at("scale"));
    let mut served_subresources = Vec::new();
    served_subresources.extend(subresources.has("status").then_some(Subresource::Status));
    served_subresources.extend(scale.is_some().then_some(Subresource::Scale));
    let texts = |field: &str| names.list(field).iter().filter_map(Value::as_str).map(Into::into).collect();
    let custom = Arc::new(Custom {
        generation: metadata::of(definition).count("generation"),
        list_kind: names.text("listKind").into(),
        is_terminating: is_true(definition, "Terminating"),
        webhook: shared.webhook.clone(),
        closing: shared.closing.clone(),
        scale: scale.clone(),
        selectable: version.list("selectableFields").iter().filter_map(selectable).collect(),
        columns: columns::of(version),
        types: shape::of_resource(&schema_name, &schema),
        written: version.at("schema").at("openAPIV3Schema").to_string().into(),
        schema: schema.clone(),
        head: format!(r#"{{"apiVersion":{api_version:?},"#).into_bytes().into(),
        api_version,
        versions: shared.versions.clone(),
    });
    Kind {
        group: group.into(),
        version: name.into(),
        kind: names.text("kind").into(),
        plural: names.text("plural").into(),
        singular: names.text("singular").into(),
        short_names: texts("shortNames"),
        categories: texts("categories"),
        scope: if spec.text("scope") == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        verbs: VERBS.to_vec(),
        stored_as: format!("{group}/{}", names.text("plural")),
        conversion: None,
        schema: schema_name,
        semantics: semantics(&served_subresources),
        presentation: Presentation::default(),
        strategy: Arc::new(CustomStrategy::new(
            custom.api_version.clone(),
            names.text("kind").into(),
            schema,
            scale,
        )),
        subresources: served_subresources,
        columns: vec![Column::name()],
        field_selectors: Vec::new(),
        deprecation: deprecation(spec, version),
        custom: Some(custom),
    }
}

fn semantics(subresources: &[Subresource]) -> Semantics {
    let status = StatusEndpoint { initial: Initial::Absent, preserved: Preserved::Everything };
    Semantics {
        unconditional_update: false,
        status: subresources.contains(&Subresource::Status).then_some(status),
        ..Semantics::default()
    }
}

/// Returns the name of a kind's schema: `com.example.stable.v1.CronTab`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

fn selectable(field: &Value) -> Option<Selectable> {
    let written = field.text("jsonPath");
    let path = written.strip_prefix('.').unwrap_or(written).to_owned();
    Some(Selectable { path, found: JsonPath::parse(written)? })
}

fn deprecation(spec: &Value, version: &Value) -> Option<Deprecation> {
    if !version.flag("deprecated") {
        return None;
    }
    if let Some(own) = version.at("deprecationWarning").as_str() {
        return Some(Deprecation::new(own));
    }
    let (group, kind, name) = (spec.text("group"), spec.at("names").text("kind"), version.text("name"));
    let is_better = |other: &&Value| {
        other.flag("served")
            && !other.flag("deprecated")
            && compare_versions(name, other.text("name")).is_lt()
    };
    let better = spec.list("versions").iter().filter(is_better).map(|other| other.text("name"));
    let mut warning = format!("{group}/{name} {kind} is deprecated");
    if let Some(best) = better.max_by(|a, b| compare_versions(a, b)) {
        warning.push_str(&format!("; use {group}/{best} {kind}"));
    }
    Some(Deprecation::new(warning))
}

/// Compares versions by stability: v2 before v1 before v1beta2 before v1alpha1 before other names, which sort in
/// reverse order. The greater one is preferred.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parsed_version(a), parsed_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Returns the stability, major and minor of `v1beta2`.
fn parsed_version(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let number = |text: &str| {
        let is_number =
            !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_number)
    };
    for (stability, word) in [(1, "beta"), (0, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_by_how_much_they_promise() {
        let mut versions =
            ["v1alpha1", "foo1", "v11beta2", "v2", "v10", "v1", "v3beta1", "v12alpha1", "foo10", "v11alpha2"];
        versions.sort_by(|a, b| compare_versions(b, a));
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }
}
