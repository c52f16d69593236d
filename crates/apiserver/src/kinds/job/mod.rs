//! Jobs.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::template;
use super::{BATCH, entry, metadata, workload};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Subresource};
use crate::strategy::{DefaultPropagation, Strategy};
use crate::table::{Column, time_since};

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
        ..entry(&BATCH, "Job", "jobs", Job)
    }
}

const COMPLETIONS: &str = "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. However, it may decrease in reaction to scale down of elastic indexed jobs.";
pub(super) const SELECTOR: &str = "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

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

/// Whether a condition is true.
fn has_condition(status: &Value, of: &str) -> bool {
    let mut conditions = status.list("conditions").iter();
    conditions.any(|condition| condition.text("type") == of && condition.text("status") == "True")
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

impl Strategy for Job {
    fn default(&self, job: &mut Value) {
        default_spec(job.object_mut("spec"));
        let labels = job.at("spec").at("template").at("metadata").at("labels").clone();
        if !labels.is_null() && job.at("metadata").map("labels").is_none_or(serde_json::Map::is_empty) {
            job.object_mut("metadata").set("labels", labels);
        }
    }

    fn prepare_for_create(&self, job: &mut Value) {
        if !job.at("spec").flag("manualSelector") {
            generate_selector(job);
        }
        workload::prepare_new(job, json!({}));
    }

    fn validate(&self, job: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(job, &mut errors);
        errors
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        workload::prepare_change(new, old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }

    fn default_propagation(&self) -> DefaultPropagation {
        DefaultPropagation::Orphan
    }
}

/// What a job's spec leaves out.
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

/// What jobs and the templates of jobs leave out alike.
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

/// Labels that make a job's pods its own, and the selector for them. What the client wrote stays, and is
/// compared when the job is validated.
fn generate_selector(job: &mut Value) {
    let name = job.at("metadata").at("name").clone();
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

/// The labels of a job's pods, by their old names and their new.
const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
