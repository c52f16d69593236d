//! CustomResourceDefinitions. They are processed in [`crate::custom`].

mod rules;
mod schema;
mod validation;
mod written;

use serde_json::{Value, json};

use super::{APIEXTENSIONS, entry};
use crate::custom::finish::{CLEANUP, PENDING};
use crate::custom::formats;
use crate::custom::names::{Condition, set_condition};
use crate::custom::props::Props;
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::metadata;
use crate::schema::decode::normalize;
use crate::schema::{FieldValidation, Schema};
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["crd".into(), "crds".into()],
        categories: vec!["api-extensions".into()],
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        semantics: Semantics {
            unconditional_update: false,
            defines_kinds: true,
            deletion: Deletion { pins_uid: true, ..Deletion::default() },
            ..Semantics::with_status(
                || json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null}),
            )
        },
        ..entry(&APIEXTENSIONS, "CustomResourceDefinition", "customresourcedefinitions", Definition)
    }
}

struct Definition;

impl Lifecycle for Definition {
    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        (subresource == Some(Subresource::Status)).then_some(&[&["spec"], &["metadata"]])
    }

    fn default(&self, definition: &mut Value) {
        for version in definition.object_mut("spec").list_mut("versions") {
            if let Some(schema) = version.at_mut("schema").and_then(|schema| schema.at_mut("openAPIV3Schema"))
            {
                normalize_schema(schema);
            }
        }
        let spec = definition.object_mut("spec");
        default_names(spec.object_mut("names"));
        spec.or_insert("conversion", json!({ "strategy": "None" }));
        default_service(spec);
        if definition.at("status").list("storedVersions").is_empty() {
            note_stored_version(definition);
        }
    }

    fn prepare_for_create(&self, definition: &mut Value) {
        note_stored_version(definition);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        note_stored_version(new);
    }

    fn terminate(&self, definition: &mut Value) -> bool {
        let mut finalizers: Vec<String> = metadata::finalizers(definition).map(Into::into).collect();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            finalizers.push(CLEANUP.into());
        }
        let now = metadata::of(definition).text("deletionTimestamp").parse().unwrap_or_default();
        definition.object_mut("metadata").set("finalizers", finalizers);
        let condition = Condition {
            kind: "Terminating",
            status: "True",
            reason: PENDING,
            message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        };
        set_condition(definition, &condition, now);
        true
    }
}

impl Validation for Definition {
    fn validate(&self, definition: &Value) -> Errors {
        validation::create(definition)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        validation::update(new, old)
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        validation::status(new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let before = old.map(unknown_formats).unwrap_or_default();
        let unknown = unknown_formats(new).into_iter().filter(|format| !before.contains(format));
        unknown.map(|format| format!("unrecognized format {format:?}")).collect()
    }
}

fn default_names(names: &mut Value) {
    let kind = names.text("kind").to_owned();
    if !kind.is_empty() {
        names.or_text("singular", &kind.to_lowercase());
        names.or_text("listKind", &format!("{kind}List"));
    }
}

fn default_service(spec: &mut Value) {
    let webhook = spec.at_mut("conversion").and_then(|conversion| conversion.at_mut("webhook"));
    let config = webhook.and_then(|webhook| webhook.at_mut("clientConfig"));
    if let Some(service) = config.and_then(|config| config.at_mut("service")) {
        service.or_insert("port", 443);
    }
}

/// Adds the storage version to `storedVersions`.
fn note_stored_version(definition: &mut Value) {
    let versions = definition.at("spec").list("versions");
    let Some(storage) = versions.iter().find(|version| version.flag("storage")) else { return };
    let storage = Value::from(storage.text("name"));
    let status = definition.object_mut("status");
    let mut stored = status.list("storedVersions").to_vec();
    if !stored.contains(&storage) {
        stored.push(storage);
        status.set("storedVersions", stored);
    }
}

/// Normalizes the parts of a schema that have several possible types, which the decoder leaves unchanged.
fn normalize_schema(schema: &mut Value) {
    const PROPS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let Some(props) = Schema::built_in(PROPS) else { return };
    for_each_part(schema, &mut |part, is_choice| {
        if is_choice && part.is_object() {
            let taken = part.clone();
            if let Ok(decoded) = normalize(&props, taken, FieldValidation::Ignore) {
                *part = decoded.object;
            }
        }
    });
}

/// Visits all subschemas, outermost first, with whether the position allows several types.
fn for_each_part(schema: &mut Value, visit: &mut dyn FnMut(&mut Value, bool)) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (name, value) in fields {
        let is_choice = matches!(name.as_str(), "items" | "additionalProperties" | "additionalItems");
        match (name.as_str(), value) {
            ("items", Value::Array(items)) | ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => {
                for item in items {
                    visit(item, name == "items");
                    for_each_part(item, visit);
                }
            }
            ("properties" | "patternProperties" | "definitions", Value::Object(parts)) => {
                for part in parts.values_mut() {
                    visit(part, false);
                    for_each_part(part, visit);
                }
            }
            ("not", part) => for_each_part(part, visit),
            (_, part) if is_choice => {
                visit(part, true);
                for_each_part(part, visit);
            }
            _ => {}
        }
    }
}

/// Returns the unrecognized string formats.
fn unknown_formats(definition: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for version in definition.at("spec").list("versions") {
        let props = Props::parse(version.at("schema").at("openAPIV3Schema")).unwrap_or_default();
        props.any(&mut |props| {
            let is_unknown =
                !props.format.is_empty() && props.ty == "string" && !formats::is_known(&props.format);
            if is_unknown && !unknown.contains(&props.format) {
                unknown.push(props.format.clone());
            }
            false
        });
    }
    unknown
}
