//! Pod templates, shared by Deployments, ReplicaSets and all other kinds that create pods.

use serde_json::Value;

use super::validation::{self, Rules};
use super::{defaults, disabled, warnings};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kinds::selector;
use crate::table::{Column, joined, or_none};
use crate::validation::labels::{self, Values};

/// Sets the defaults in `spec.template` of a workload.
pub fn default(workload_spec: &mut Value) {
    default_template(workload_spec.object_mut("template"));
}

/// Sets the defaults of a template.
pub(in crate::kinds) fn default_template(template: &mut Value) {
    template.object_mut("metadata");
    defaults::default_spec(template.object_mut("spec"));
    defaults::drop_init_container_annotations(template);
}

/// Drops the fields of disabled features from `spec.template`.
pub fn drop_disabled(workload_spec: &mut Value) {
    if let Some(spec) = workload_spec.at_mut("template").and_then(|template| template.at_mut("spec")) {
        disabled::drop_fields(spec);
    }
}

/// Returns warnings about a workload: about its name if it is new, and about the template if it may have changed.
pub fn warnings(new: &Value, old: Option<&Value>, changed: impl FnOnce(&Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    if old.is_none() {
        warn_of_name(new, &mut found);
    }
    if old.is_none_or(changed) {
        let path = Path::root("spec");
        warn(new.at("spec").at("template"), &path.child("template"), &mut found);
    }
    found
}

/// Warns about a name that will be part of pod names.
pub(in crate::kinds) fn warn_of_name(workload: &Value, found: &mut Vec<String>) {
    warnings::of_name(workload, "Pod names and hostnames", found);
}

/// Collects warnings about a template.
pub(in crate::kinds) fn warn(template: &Value, path: &Path<'_>, found: &mut Vec<String>) {
    warnings::of_spec(template, Some(path), found);
}

/// Returns the last columns of workloads.
pub fn columns(selector_description: &'static str) -> Vec<Column> {
    let selector = Column::text("Selector", selector_description, |workload, _| {
        or_none(&selector::shown(job_or_self(workload).at("selector")))
    });
    container_columns().map(Column::wide).into_iter().chain([selector.wide()]).collect()
}

/// Returns the columns with the names and images of a template's containers.
pub(in crate::kinds) fn container_columns() -> [Column; 2] {
    [
        Column::text("Containers", "Names of each container in the template.", |workload, _| {
            joined(containers(workload), "name")
        }),
        Column::text("Images", "Images referenced by each container in the template.", |workload, _| {
            joined(containers(workload), "image")
        }),
    ]
}

fn containers(workload: &Value) -> &[Value] {
    // A PodTemplate has it at the top level.
    let template = if workload.has("template") { workload } else { job_or_self(workload) }.at("template");
    template.at("spec").list("containers")
}

/// Returns the spec with the template: a workload's own, or that of its job template.
fn job_or_self(workload: &Value) -> &Value {
    let spec = workload.at("spec");
    if spec.has("jobTemplate") { spec.at("jobTemplate").at("spec") } else { spec }
}

/// Validates `spec.selector` and `spec.template` of a ReplicaSet or Deployment.
pub fn check_selected(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector = spec.at("selector");
    if !check_selector(selector, "deployment", &path.child("selector"), errors) {
        return errors.invalid(&path.child("selector"), selector.clone(), "invalid label selector");
    }
    let path = path.child("template");
    let template = spec.at("template");
    check_labels(selector, template, &path, errors);
    check(template, old.at("template"), &path, errors);
    check_runs_forever(template, "ReplicaSet", &path, errors);
}

/// Validates a required selector; returns whether it is well-formed.
pub(in crate::kinds) fn check_selector(
    selector: &Value,
    of: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> bool {
    if selector.is_null() {
        errors.required(path, "");
        return true;
    }
    let before = errors.0.len();
    labels::selector(selector, Values::Checked, path, errors);
    let well_formed = errors.0.len() == before;
    if selector::is_empty(selector) {
        errors.invalid(path, selector.clone(), format!("empty selector is invalid for {of}"));
    }
    well_formed
}

/// Checks that the selector matches the template's labels.
pub(in crate::kinds) fn check_labels(
    selector: &Value,
    template: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let labels = template.at("metadata").at("labels");
    // A missing selector matches nothing; an empty one is a separate error.
    if selector.is_null() || !selector::matches(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&path.child("metadata").child("labels"), labels.clone(), detail);
    }
}

/// Checks that pods always restart, as in most workloads.
pub(in crate::kinds) fn check_runs_forever(template: &Value, of: &str, path: &Path<'_>, errors: &mut Errors) {
    let spec_path = path.child("spec");
    let restart = template.at("spec").text("restartPolicy");
    if restart != "Always" {
        errors.not_supported(&spec_path.child("restartPolicy"), restart, &["Always"]);
    }
    if template.at("spec").has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {of} is not Supported");
        errors.forbidden(&spec_path.child("activeDeadlineSeconds"), detail);
    }
}

/// Validates the metadata of a template.
pub(in crate::kinds) fn check_metadata(template: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (metadata, spec) = (template.at("metadata"), template.at("spec"));
    labels::labels(metadata, "labels", path, errors);
    labels::annotations(metadata, path, errors);
    validation::annotations::check(metadata, spec, path, &Rules::towards(old, false), errors);
}

/// Validates a template; `old` is null for a new one.
pub(in crate::kinds) fn check(template: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = Rules::towards(old, false);
    let (metadata, spec) = (template.at("metadata"), template.at("spec"));
    check_metadata(template, old, path, errors);
    let spec_path = path.child("spec");
    validation::check_spec(spec, &Value::Null, &spec_path, &rules, errors);
    validation::annotations::check_against_fields(metadata, spec, &spec_path, errors);
    if !spec.list("ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&spec_path.child("ephemeralContainers"), detail);
    }
}
