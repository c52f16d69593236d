//! Jobs.
//!
//! A job gets its labels and selector on creation, and is mostly immutable after that.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::template;
use super::{BATCH, entry, metadata, workload};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource};
use crate::strategy::{
    DefaultPropagation, Deletion, Lifecycle, NameRule, Presentation, Semantics, Validation,
};
use crate::table::{Column, time_since};
use crate::validation::has_condition;
use crate::validation::labels::is_filled;

mod indexes;
mod policy;
mod status;
pub(super) mod validation;

pub fn kind() -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::text("Status", "Status of the job.", |job, _| state(job).into()),
        Column::text("Completions", COMPLETIONS, |job, _| completions(job).into()),
        Column::text("Duration", "Time required to complete the job.", |job, now| duration(job, now).into()),
        Column::age(),
    ];
    columns.extend(template::columns(SELECTOR));
    Kind {
        categories: vec!["all".into()],
        subresources: vec![Subresource::Status],
        columns,
        field_selectors: vec![FieldSelector {
            path: "status.successful",
            value: |job| job.at("status").count("succeeded").to_string(),
        }],
        semantics: Semantics {
            deletion: Deletion {
                propagation: DefaultPropagation::Orphan,
                default_warning: Some(PODS_STAY),
                ..Deletion::default()
            },
            ..Semantics::with_status(|| json!({}))
        },
        presentation: Presentation {
            unknown_field: |field| format!("field label {field:?} not supported for Job"),
            ..Presentation::default()
        },
        ..entry(&BATCH, "Job", "jobs", Job)
    }
}

const COMPLETIONS: &str = "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. However, it may decrease in reaction to scale down of elastic indexed jobs.";
pub(super) const SELECTOR: &str = "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

fn state(job: &Value) -> &'static str {
    let has = |of: &&str| has_condition(job.at("status"), of);
    if let Some(ended) = ["Complete", "Failed"].into_iter().find(has) {
        return ended;
    }
    if job.at("metadata").has("deletionTimestamp") {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(has).unwrap_or("Running")
}

fn completions(job: &Value) -> String {
    let spec = job.at("spec");
    let succeeded = job.at("status").count("succeeded");
    match (spec.int("completions"), spec.count("parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let status = job.at("status");
    let start = status.text("startTime");
    let end = status.text("completionTime").parse().unwrap_or(now);
    if start.is_empty() { String::new() } else { time_since(start, end) }
}

struct Job;

impl Lifecycle for Job {
    fn default(&self, job: &mut Value) {
        default_spec(job.object_mut("spec"));
    }

    fn prepare_for_create(&self, job: &mut Value) {
        let pods_have_labels = is_filled(job.at("spec").at("template").at("metadata").map("labels"));
        if !job.at("spec").flag("manualSelector") {
            generate_selector(job);
        }
        if pods_have_labels {
            label_as_pods(job);
        }
        workload::drop_disabled(job);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        label_as_pods(new);
        workload::drop_disabled(new);
    }

    fn canonicalize(&self, job: &mut Value) {
        label_as_pods(job);
    }

    /// Labels copied from the template belong to the creator. Labels generated later do not.
    fn owned(&self, job: &Value) -> Option<Value> {
        if is_filled(job.at("metadata").map("labels")) {
            return None;
        }
        let mut owned = job.clone();
        label_as_pods(&mut owned);
        Some(owned)
    }
}

impl Validation for Job {
    fn validate(&self, job: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(job, &mut errors);
        validation::check(job, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        validation::check(new, old, &mut errors);
        metadata::change(new, &mut errors);
        validation::check_change(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        status::check(new, old, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none() {
            template::warn_of_name(new, &mut found);
        }
        if old.is_none_or(|old| self.changes_generation(new, old)) {
            warn_of_spec(new.at("spec"), &Path::root("spec"), &mut found);
        }
        found
    }
}

/// Gives a job without labels those of its pods, including generated ones.
fn label_as_pods(job: &mut Value) {
    let labels = job.at("spec").at("template").at("metadata").at("labels").clone();
    if !labels.is_null() && !is_filled(job.at("metadata").map("labels")) {
        job.object_mut("metadata").set("labels", labels);
    }
}

/// Above these limits, a job may have more indexes than its status can list.
const TRACKED_COMPLETIONS: i64 = 100_000;
const TRACKED_PARALLELISM: i64 = 10_000;

/// Collects warnings about the spec of a job or a job template.
pub(super) fn warn_of_spec(spec: &Value, path: &Path<'_>, found: &mut Vec<String>) {
    let is_large =
        spec.count("completions") > TRACKED_COMPLETIONS && spec.count("parallelism") > TRACKED_PARALLELISM;
    if spec.text("completionMode") == "Indexed" && is_large {
        found.push(format!("{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
    }
    template::warn(spec.at("template"), &path.child("template"), found);
}

/// Sets the defaults of a job's spec.
fn default_spec(spec: &mut Value) {
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.set("completions", 1);
    }
    spec.or_insert("parallelism", 1);
    let backoff = if spec.has("backoffLimitPerIndex") { i32::MAX } else { 6 };
    spec.or_insert("backoffLimit", backoff);
    spec.or_insert("completionMode", "NonIndexed");
    spec.or_insert("suspend", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.or_insert("podReplacementPolicy", replacement);
    spec.or_insert("manualSelector", false);
    default_template(spec);
}

/// Sets the defaults that jobs and job templates share.
pub(super) fn default_template(spec: &mut Value) {
    if let Some(policy) = spec.at_mut("podFailurePolicy") {
        for rule in policy.list_mut("rules") {
            for pattern in rule.list_mut("onPodConditions") {
                pattern.or_text("status", "True");
            }
        }
    }
    template::default(spec);
}

/// Generates the labels that identify a job's pods, and the selector for them. Client-provided values are kept, and
/// compared in validation.
fn generate_selector(job: &mut Value) {
    let name = Value::from(job.at("metadata").text("name"));
    let uid = job.at("metadata").at("uid").clone();
    let spec = job.object_mut("spec");
    let labels = spec.object_mut("template").object_mut("metadata").object_mut("labels");
    for label in JOB_NAME {
        labels.or_insert(label, name.clone());
    }
    for label in CONTROLLER_UID {
        labels.or_insert(label, uid.clone());
    }
    let wanted = spec.object_mut("selector").object_mut("matchLabels");
    wanted.or_insert(CONTROLLER_UID[1], uid);
}

/// The labels of a job's pods, by their old and new names.
const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn job(change: impl FnOnce(&mut Value)) -> Value {
        let mut job = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"template": {"metadata": {},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        change(job.object_mut("spec"));
        job
    }

    fn made(change: impl FnOnce(&mut Value)) -> Value {
        let mut job = job(change);
        Job.default(&mut job);
        Job.prepare_for_create(&mut job);
        Job.canonicalize(&mut job);
        job
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let job = made(|_| ());
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );
        assert_eq!(job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]);
        assert_eq!(job["metadata"]["labels"]["job-name"], "a");
        assert!(Job.validate(&job).is_empty());
        check::create(
            &Job,
            self::job(|spec| spec.set("selector", json!({"matchLabels": {"x": "y"}}))),
            &["Invalid spec.selector", "Invalid spec.template.metadata.labels"],
        );
    }

    #[test]
    fn pods_of_a_job_end() {
        let mut restarting = job(|_| ());
        restarting["spec"]["template"]["spec"].unset("restartPolicy");
        check::create(&Job, restarting, &["Required spec.template.spec.restartPolicy"]);
        check::create(
            &Job,
            job(|spec| {
                spec.set("parallelism", -1);
                spec.set("completionMode", "X");
                spec.set("managedBy", "x");
                spec.set("podReplacementPolicy", "X");
            }),
            &[
                "Invalid spec.parallelism",
                "Invalid spec.managedBy",
                "NotSupported spec.completionMode",
                "NotSupported spec.podReplacementPolicy",
            ],
        );
    }

    #[test]
    fn indexed_jobs_are_validated() {
        let indexed = |change: &dyn Fn(&mut Value)| {
            job(|spec| {
                spec.set("completionMode", "Indexed");
                spec.set("completions", 3);
                change(spec);
            })
        };
        check::create(&Job, indexed(&|_| ()), &[]);
        check::create(
            &Job,
            indexed(&|spec| {
                spec.unset("completions");
                spec.set("parallelism", 1);
            }),
            &["Required spec.completions"],
        );
        check::create(
            &Job,
            indexed(&|spec| {
                spec.set("maxFailedIndexes", 4);
                spec.set(
                    "successPolicy",
                    json!({"rules": [{"succeededIndexes": "0-9", "succeededCount": 5}]}),
                );
            }),
            &[
                "Required spec.backoffLimitPerIndex",
                "Invalid spec.maxFailedIndexes",
                "Invalid spec.successPolicy.rules[0].succeededIndexes",
                "Invalid spec.successPolicy.rules[0].succeededCount",
                "Invalid spec.successPolicy.rules[0].succeededCount",
            ],
        );
    }

    #[test]
    fn failure_policy_rules_have_a_condition() {
        let rule = |rule: Value| job(|spec| spec.set("podFailurePolicy", json!({"rules": [rule]})));
        let path = "spec.podFailurePolicy.rules[0]";
        check::create(
            &Job,
            rule(json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}})),
            &[],
        );
        check::create(
            &Job,
            rule(json!({"action": "X"})),
            &[&format!("NotSupported {path}.action"), &format!("Invalid {path}")],
        );
        check::create(
            &Job,
            rule(
                json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "containerName": "x", "values": [2, 0, 2]}}),
            ),
            &[
                &format!("Invalid {path}.action"),
                &format!("Invalid {path}.onExitCodes.containerName"),
                &format!("Invalid {path}.onExitCodes.values[1]"),
                &format!("Duplicate {path}.onExitCodes.values[2]"),
                &format!("Invalid {path}.onExitCodes.values"),
            ],
        );
    }

    #[test]
    fn most_fields_of_a_job_are_immutable() {
        let old = made(|_| ());
        let change = |change: &dyn Fn(&mut Value)| {
            let mut new = old.clone();
            change(new.object_mut("spec"));
            check::shown(&Job.validate_update(&new, &old))
        };
        assert!(change(&|spec| spec.set("parallelism", 5)).is_empty());
        assert_eq!(change(&|spec| spec.set("completions", 5)), ["Invalid spec.completions"]);
        let image = |spec: &mut Value| spec["template"]["spec"]["containers"][0]["image"] = "j".into();
        assert_eq!(change(&image), ["Invalid spec.template"]);
        let place = |spec: &mut Value| spec["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
        assert_eq!(change(&place), ["Invalid spec.template"]);
        let suspended = made(|spec| spec.set("suspend", true));
        let mut placed = suspended.clone();
        place(placed.object_mut("spec"));
        placed["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {}});
        assert_eq!(check::shown(&Job.validate_update(&placed, &suspended)), [] as [&str; 0]);
    }

    #[test]
    fn finished_jobs_stay_finished() {
        let condition = |of: &str| json!({"type": of, "status": "True"});
        let check = |new: Value, old: Value, expected: &[&str]| {
            let of = |status: Value| json!({"spec": {"completions": 2, "parallelism": 1, "completionMode": "Indexed"}, "status": status});
            assert_eq!(check::shown(&Job.validate_status_update(&of(new), &of(old))), expected);
        };
        let started = "2020-01-01T00:00:00Z";
        let complete = json!({"startTime": started, "completionTime": started,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        check(complete.clone(), json!({"startTime": started}), &[]);
        check(
            json!({"startTime": started, "conditions": [condition("Complete")]}),
            json!({"startTime": started}),
            &["Required status.completionTime", "Invalid status.conditions"],
        );
        check(
            json!({"startTime": started, "conditions": [condition("SuccessCriteriaMet")]}),
            complete,
            &["Invalid status.conditions"],
        );
        check(
            json!({"active": 1, "ready": 2, "completedIndexes": "0,5"}),
            json!({"failed": 1}),
            &["Invalid status.completedIndexes", "Invalid status.ready", "Invalid status.failed"],
        );
    }
}
