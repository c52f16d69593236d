//! Validates jobs and their updates.

use serde_json::{Value, json};

use super::{CONTROLLER_UID, JOB_NAME, policy};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kinds::pod::template;
use crate::kinds::selector;
use crate::names;
use crate::validation::labels::{self, Values};
use crate::validation::{domain_prefixed_path, immutable, nonnegative_field, optional_choice, too_long};

const MANAGER_BYTES: usize = 63;
/// Maximum parallelism, and failed indexes, of an indexed job.
const MAX_PARALLEL: i64 = 100_000;
const MAX_FAILED: i64 = 100_000;
/// Above this many completions, with a backoff limit per index, the limits are lower.
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_PARALLEL_OF_MANY: i64 = 10_000;
const MAX_FAILED_OF_MANY: i64 = 10_000;

/// Validates a job; `old` is null for a new one.
pub(super) fn check(job: &Value, old: &Value, errors: &mut Errors) {
    check_generated_selector(job, needs_new_labels(old), errors);
    check_spec(job.at("spec"), old.at("spec"), errors);
    check_hostnames(job, errors);
}

/// Whether a job needs the prefixed labels: existing jobs without them do not.
fn needs_new_labels(old: &Value) -> bool {
    let labels = old.at("spec").at("template").at("metadata").at("labels");
    old.is_null() || labels.has(JOB_NAME[1]) && labels.has(CONTROLLER_UID[1])
}

/// Checks that the labels and selector of a job match the generated ones.
fn check_generated_selector(job: &Value, needs_new: bool, errors: &mut Errors) {
    let spec = job.at("spec");
    if spec.flag("manualSelector") || !spec.has("selector") {
        return;
    }
    let (name, uid) = (job.at("metadata").text("name"), job.at("metadata").text("uid"));
    let path = Path::root("spec");
    let template = path.child("template");
    let metadata = template.child("metadata");
    let pod_labels = spec.at("template").at("metadata").at("labels");
    let mut expected = json!({});
    let generated =
        [(CONTROLLER_UID[0], uid), (JOB_NAME[0], name), (CONTROLLER_UID[1], uid), (JOB_NAME[1], name)];
    for (label, value) in &generated[..if needs_new { 4 } else { 2 }] {
        check_label(pod_labels, label, value, &metadata.child("labels"), errors);
        expected.set(label, *value);
    }
    let mut unreadable = Errors::default();
    labels::selector(spec.at("selector"), Values::Checked, &path.child("selector"), &mut unreadable);
    if unreadable.0.is_empty() && !selector::matches(spec.at("selector"), &expected) {
        errors.invalid(&path.child("selector"), spec.at("selector").clone(), "`selector` not auto-generated");
    }
}

fn check_label(labels: &Value, label: &str, expected: &str, path: &Path<'_>, errors: &mut Errors) {
    match labels.at(label).as_str() {
        None => errors.required(&path.key(label), format!("must be '{expected}'")),
        Some(found) if found != expected => {
            errors.invalid(&path.key(label), labels.clone(), format!("must be '{expected}'"));
        }
        Some(_) => {}
    }
}

fn check_spec(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    check_common(spec, old, &path, errors);
    let selector = spec.at("selector");
    if selector.is_null() {
        errors.required(&path.child("selector"), "");
    }
    let before = errors.0.len();
    let lenient = labels::has_bad_values(old.at("selector"));
    let values = if lenient { Values::Unchecked } else { Values::Checked };
    labels::selector(selector, values, &path.child("selector"), errors);
    if errors.0.len() == before {
        template::check_labels(selector, spec.at("template"), &path.child("template"), errors);
    }
}

/// Validates what jobs and job templates share.
pub(in crate::kinds) fn check_common(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_numbers(spec, path, errors);
    if let Some(manager) = spec.at("managedBy").as_str() {
        let path = path.child("managedBy");
        domain_prefixed_path(manager, &path, errors);
        if manager.len() > MANAGER_BYTES {
            too_long(MANAGER_BYTES, &path, errors);
        }
    }
    check_completion_mode(spec, path, errors);
    policy::check_failure(spec, &path.child("podFailurePolicy"), errors);
    policy::check_success(spec, &path.child("successPolicy"), errors);
    let replacements: &[&str] = match spec.has("podFailurePolicy") {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    optional_choice(spec, "podReplacementPolicy", replacements, path, errors);
    let template_path = path.child("template");
    template::check(spec.at("template"), old.at("template"), &template_path, errors);
    check_restart_policy(spec, &template_path.child("spec").child("restartPolicy"), errors);
}

fn check_numbers(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for number in numbers {
        nonnegative_field(spec, number, path, errors);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
}

fn check_completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    optional_choice(spec, "completionMode", &["NonIndexed", "Indexed"], path, errors);
    match spec.text("completionMode") {
        "Indexed" => check_indexed(spec, path, errors),
        "NonIndexed" | "" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = spec.int(field) {
                    errors.invalid(&path.child(field), number, "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
}

fn check_indexed(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (completions, parallelism) = (spec.int("completions"), spec.count("parallelism"));
    let failures = spec.int("maxFailedIndexes");
    let (parallel_path, failed_path) = (path.child("parallelism"), path.child("maxFailedIndexes"));
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    if parallelism > MAX_PARALLEL {
        let detail = format!("must be less than or equal to {MAX_PARALLEL} when completion mode is Indexed");
        errors.invalid(&parallel_path, parallelism, detail);
    }
    if let (Some(failed), Some(completions)) = (failures, completions)
        && failed > completions
    {
        errors.invalid(&failed_path, failed, "must be less than or equal to completions");
    }
    let failed = failures.unwrap_or(0);
    if failed > MAX_FAILED {
        errors.invalid(&failed_path, failed, format!("must be less than or equal to {MAX_FAILED}"));
    }
    if completions.unwrap_or(0) <= MANY_COMPLETIONS || !spec.has("backoffLimitPerIndex") {
        return;
    }
    if failures.is_none() {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.required(&failed_path, detail);
    }
    let bounds =
        [(parallelism, MAX_PARALLEL_OF_MANY, &parallel_path), (failed, MAX_FAILED_OF_MANY, &failed_path)];
    for (number, most, path) in bounds {
        if number > most {
            let detail = format!(
                "must be less than or equal to {most} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            );
            errors.invalid(path, number, detail);
        }
    }
}

/// Checks that pods of jobs do not restart forever.
fn check_restart_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    match spec.at("template").at("spec").text("restartPolicy") {
        "Always" | "" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if spec.has("podFailurePolicy") => {
            errors.invalid(
                path,
                "OnFailure",
                "only \"Never\" is supported when podFailurePolicy is specified",
            );
        }
        "OnFailure" => {}
        other => errors.not_supported(path, other, &["OnFailure", "Never"]),
    }
}

/// Checks the hostnames of an indexed job's pods: its name and their index.
fn check_hostnames(job: &Value, errors: &mut Errors) {
    let spec = job.at("spec");
    let completions = spec.count("completions");
    if spec.text("completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.at("metadata").text("name");
    let longest = format!("{name}-{}", completions - 1);
    if !names::dns_label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(&Path::root("metadata").child("name"), name, detail);
    }
}

/// Validates an update. Jobs are mostly immutable: only parallelism may change, and, before the first start, where
/// pods run.
pub(super) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    check_spec(new.at("spec"), old.at("spec"), errors);
    let path = Path::root("spec");
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    check_completions(spec, old_spec, &path.child("completions"), errors);
    let keep = |field: &str, errors: &mut Errors| {
        immutable(spec.at(field), old_spec.at(field), &path.child(field), errors);
    };
    keep("selector", errors);
    check_template_change(new, old, &path.child("template"), errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        keep(field, errors);
    }
}

/// Checks that an indexed job changes its completions only together with parallelism.
fn check_completions(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let completions = spec.at("completions");
    if spec.text("completionMode") != "Indexed" {
        return immutable(completions, old.at("completions"), path, errors);
    }
    let changes = completions != old.at("completions") && !completions.is_null();
    if changes && completions != spec.at("parallelism") {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(path, completions.clone(), detail);
    }
}

/// Validates a template change: the scheduling of a suspended job's pods may change until it first starts.
fn check_template_change(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let template = new.at("spec").at("template");
    let mut expected = old.at("spec").at("template").clone();
    if old.at("spec").flag("suspend") && !old.at("status").has("startTime") {
        let metadata = expected.object_mut("metadata");
        for field in ["labels", "annotations"] {
            metadata.restore(field, template.at("metadata"));
        }
        let spec = expected.object_mut("spec");
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            spec.restore(field, template.at("spec"));
        }
        let wanted = template.at("spec").at("affinity");
        let mut affinity = spec.unset("affinity").unwrap_or_default();
        if affinity.is_null() {
            affinity = json!({});
        }
        affinity.restore("nodeAffinity", wanted);
        let is_empty = affinity.as_object().is_some_and(serde_json::Map::is_empty);
        if !wanted.is_null() || !is_empty {
            spec.set("affinity", affinity);
        }
    }
    immutable(template, &expected, path, errors);
}
