//! The strategy of custom resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::props::Props;
use super::rules::{self, Rules};
use super::scale::{self, ScalePaths};
use super::{defaults, lists, meta, validate};
use crate::field::{Errors, FieldError, Path, Reason};
use crate::json::Json;
use crate::kind::Subresource;
use crate::metadata;
use crate::names;
use crate::strategy::{Lifecycle, Validation};

pub(super) struct CustomStrategy {
    api_version: String,
    kind: String,
    schema: Arc<Props>,
    /// The schema of the status alone, for the status subresource.
    status: Option<Props>,
    scale: Option<ScalePaths>,
    rules: Option<Rules>,
}

impl CustomStrategy {
    pub(super) fn new(
        api_version: String,
        kind: String,
        schema: Arc<Props>,
        scale: Option<ScalePaths>,
    ) -> Self {
        let status = schema.properties.get("status").cloned();
        let rules = Rules::of(&schema, true);
        Self { api_version, kind, schema, status, scale, rules }
    }

    /// Validates kind and version. If they are wrong, nothing else is checked.
    fn check_type(&self, object: &Value) -> Errors {
        let mut errors = Errors::default();
        for (field, expected) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            let found = object.text(field);
            if found != expected {
                errors.invalid(&Path::root(field), found, format!("must be {expected}"));
            }
        }
        errors
    }

    /// Checks the schema's rules, unless more serious errors block them.
    fn check_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
        warnings: &mut Vec<String>,
    ) {
        let Some(rules) = &self.rules else { return };
        if !rules::blocks(errors) {
            let (broken, tolerated) = rules.check("", object, old);
            warnings.extend(tolerated);
            return errors.extend(broken);
        }
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        let (reason, field) = (Reason::Invalid, "<nil>".into());
        errors.0.push(FieldError { reason, field, value: Some(Value::Null), detail: detail.into() });
    }

    fn check_scale(&self, object: &Value, with_spec: bool, errors: &mut Errors) {
        let Some(paths) = &self.scale else { return };
        if with_spec {
            check_replicas(object, &paths.spec, &paths.written, errors);
        }
        check_replicas(object, &paths.status, &paths.written_status, errors);
        if let Some(selector) = &paths.selector
            && let Err(why) = scale::nested_text(object, selector)
        {
            errors.invalid(&Path::root(&paths.written_selector), "", why);
        }
    }
}

fn check_replicas(object: &Value, path: &[String], written: &str, errors: &mut Errors) {
    let at = Path::root(written);
    match scale::nested_number(object, path) {
        Err(why) => errors.invalid(&at, 0, why),
        Ok(Some(replicas)) if replicas < 0 => {
            errors.invalid(&at, replicas, "should be a non-negative integer");
        }
        Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
            errors.invalid(&at, replicas, format!("should be less than or equal to {}", i32::MAX));
        }
        Ok(_) => {}
    }
}

impl Lifecycle for CustomStrategy {
    fn default(&self, object: &mut Value) {
        if object.text("kind") == self.kind && object.text("apiVersion") == self.api_version {
            defaults::fill(object, &self.schema);
        }
    }

    /// Counts everything but metadata, including the status if it is not a subresource.
    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        let counted = |object: &Value, other: &Value| {
            let fields = object.as_object().into_iter().flatten();
            fields
                .filter(|(field, _)| *field != "metadata")
                .any(|(field, value)| other.get(field) != Some(value))
        };
        counted(new, old) || counted(old, new)
    }
}

impl Validation for CustomStrategy {
    fn validate(&self, object: &Value) -> Errors {
        let mut errors = self.check_type(object);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(validate::validate("", object, &self.schema));
        self.check_scale(object, true, &mut errors);
        meta::validate_embedded(object, &self.schema, "", false, &mut errors);
        lists::validate(object, &self.schema, "", &mut errors);
        self.check_rules(object, None, &mut errors, &mut Vec::new());
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        self.check_update(new, old, &mut Vec::new())
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        self.check_status_update(new, old, &mut Vec::new())
    }

    fn validate_change(
        &self,
        subresource: Option<Subresource>,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Errors {
        match subresource {
            Some(Subresource::Status) => self.check_status_update(new, old, warnings),
            _ => self.check_update(new, old, warnings),
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let before: BTreeSet<&str> = old.into_iter().flat_map(metadata::finalizers).collect();
        let added: BTreeSet<&str> = metadata::finalizers(new).filter(|name| !before.contains(name)).collect();
        added.into_iter().flat_map(finalizer_warnings).collect()
    }
}

impl CustomStrategy {
    fn check_update(&self, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Errors {
        let mut errors = self.check_type(new);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(validate::validate_update("", new, Some(old), &self.schema));
        self.check_scale(new, true, &mut errors);
        meta::validate_embedded(new, &self.schema, "", false, &mut errors);
        self.check_lists(new, old, &mut errors);
        self.check_rules(new, Some(old), &mut errors, warnings);
        errors
    }

    fn check_status_update(&self, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Errors {
        let mut errors = self.check_type(new);
        if !errors.is_empty() {
            return errors;
        }
        if let (Some(status), Some(schema)) = (new.get("status"), &self.status) {
            errors.extend(validate::validate_update("status", status, old.get("status"), schema));
        }
        self.check_scale(new, false, &mut errors);
        self.check_lists(new, old, &mut errors);
        self.check_rules(new, Some(old), &mut errors, warnings);
        errors
    }

    /// Checks for duplicates in lists; a list that already had some may keep them.
    fn check_lists(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let mut before = Errors::default();
        lists::validate(old, &self.schema, "", &mut before);
        if before.is_empty() {
            lists::validate(new, &self.schema, "", errors);
        }
    }
}

fn finalizer_warnings(finalizer: &str) -> Vec<String> {
    const STANDARD: [&str; 3] = [metadata::ORPHAN, metadata::FOREGROUND, "kubernetes"];
    let at = |what: &str| format!("metadata.finalizers: {finalizer:?}: {what}");
    let mut warnings: Vec<String> = names::qualified_name(finalizer).iter().map(|why| at(why)).collect();
    if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        warnings.push(at(&format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )));
    }
    warnings
}
