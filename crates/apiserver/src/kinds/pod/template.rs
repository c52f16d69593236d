//! Pod templates: what Deployments, ReplicaSets and every other kind that makes pods share.

use serde_json::Value;

use super::validation::{self, Rules};
use super::{defaults, disabled, warnings};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kinds::selector;
use crate::table::{Column, joined};
use crate::validation::labels::{self, Values};

/// Fills in `spec.template` of a workload.
pub fn default(workload_spec: &mut Value) {
    let template = workload_spec.object_mut("template");
    template.object_mut("metadata");
    defaults::default_spec(template.object_mut("spec"));
    defaults::drop_init_container_annotations(template);
}

/// Drops from `spec.template` the fields whose feature is off.
pub fn drop_disabled(workload_spec: &mut Value) {
    if let Some(spec) = workload_spec.at_mut("template").and_then(|template| template.at_mut("spec")) {
        disabled::drop_fields(spec);
    }
}

/// Warnings about a workload that makes pods: about its name when it is new, about the template when that may
/// have changed.
pub fn warnings(new: &Value, old: Option<&Value>, changed: impl FnOnce(&Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    if old.is_none() {
        warnings::of_name(new, "Pod names and hostnames", &mut found);
    }
    if old.is_none_or(changed) {
        let path = Path::root("spec");
        warnings::of_spec(new.at("spec").at("template"), Some(&path.child("template")), &mut found);
    }
    found
}

/// The columns that workloads end with.
pub fn columns(selector_description: &'static str) -> [Column; 3] {
    [
        Column::text("Containers", "Names of each container in the template.", |workload, _| {
            joined(containers(workload), "name")
        })
        .wide(),
        Column::text("Images", "Images referenced by each container in the template.", |workload, _| {
            joined(containers(workload), "image")
        })
        .wide(),
        Column::text("Selector", selector_description, |workload, _| {
            selector::shown(workload.at("spec").at("selector")).into()
        })
        .wide(),
    ]
}

fn containers(workload: &Value) -> &[Value] {
    workload.at("spec").at("template").at("spec").list("containers")
}

/// What is wrong with `spec.selector` and `spec.template` of a workload whose pods run for ever.
pub fn check_selected(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector_path = path.child("selector");
    let selector = spec.at("selector");
    let before = errors.0.len();
    if selector.is_null() {
        errors.required(&selector_path, "");
    } else {
        labels::selector(selector, Values::Checked, &selector_path, errors);
        if selector::is_empty(selector) {
            errors.invalid(&selector_path, selector.clone(), "empty selector is invalid for deployment");
        }
    }
    let well_formed = selector.is_null() || selector::is_empty(selector) || errors.0.len() == before;
    if !well_formed {
        return errors.invalid(&selector_path, selector.clone(), "invalid label selector");
    }
    let path = path.child("template");
    let template = spec.at("template");
    let labels = template.at("metadata").at("labels");
    // No selector selects nothing; an empty one is an error of its own.
    if selector.is_null() || !selector::matches(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&path.child("metadata").child("labels"), labels.clone(), detail);
    }
    check(template, old.at("template"), &path, errors);
    let spec_path = path.child("spec");
    let restart = template.at("spec").text("restartPolicy");
    if restart != "Always" {
        errors.not_supported(&spec_path.child("restartPolicy"), restart, &["Always"]);
    }
    if template.at("spec").has("activeDeadlineSeconds") {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.forbidden(&spec_path.child("activeDeadlineSeconds"), detail);
    }
}

/// What is wrong with a template itself; `old` is null for a new one.
fn check(template: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = Rules::towards(old, false);
    let (metadata, spec) = (template.at("metadata"), template.at("spec"));
    labels::labels(metadata, "labels", path, errors);
    labels::annotations(metadata, path, errors);
    validation::annotations::check(metadata, spec, path, &rules, errors);
    let spec_path = path.child("spec");
    validation::check_spec(spec, &Value::Null, &spec_path, &rules, errors);
    validation::annotations::check_against_fields(metadata, spec, &spec_path, errors);
    if !spec.list("ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&spec_path.child("ephemeralContainers"), detail);
    }
}
