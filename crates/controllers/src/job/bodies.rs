//! Pod bodies: the Job's template with the tracking finalizer and, for indexed Jobs, the index. Pure.

use serde_json::{Map, Value, json};
use setpoint::Labels;

use super::assess::Indexed;
use super::failure_policy::{Verdict, verdict};
use super::view::{Job, TRACKING};
use crate::workload::pod_control::MAX_GENERATED_BASE;
use crate::workload::template::{PodTemplate, TemplateMetadata, with_label};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Returns the pod template with the tracking finalizer.
pub(super) fn tracked(job: &Job) -> PodTemplate {
    let mut template = job.spec.template.clone();
    let finalizers = &template.metadata.finalizers;
    if !finalizers.iter().any(|finalizer| **finalizer == *TRACKING) {
        template.metadata.finalizers = finalizers.iter().cloned().chain([TRACKING.into()]).collect();
    }
    template
}

/// The pod templates of an indexed Job.
pub(super) struct IndexedTemplates {
    metadata: TemplateMetadata,
    spec: Map<String, Value>,
}

impl IndexedTemplates {
    /// Prepares the template once for many pods. Only the index-specific part is left to fill in.
    pub(super) fn of(job: &Job) -> Self {
        let template = tracked(job);
        let mut spec: Map<String, Value> = serde_json::from_str(template.spec.get()).unwrap_or_default();
        for containers in ["initContainers", "containers"] {
            let containers = spec.get_mut(containers).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(add_index_variable);
        }
        Self { metadata: template.metadata, spec }
    }

    /// Returns the pod template of an index. It inherits the failure count of the pod it replaces.
    pub(super) fn pod(&self, job_name: &str, job: &Job, indexed: &Indexed<'_>, index: usize) -> PodTemplate {
        let mut metadata = self.metadata.clone();
        metadata.labels = with_label(&metadata.labels, INDEX, &index.to_string());
        metadata.annotations = with_label(&metadata.annotations, INDEX, &index.to_string());
        if indexed.failed.is_some() {
            metadata.annotations = with_failures(&metadata.annotations, failures(job, indexed, index));
        }
        let mut spec = self.spec.clone();
        spec.insert("hostname".into(), format!("{job_name}-{index}").into());
        let spec = serde_json::value::to_raw_value(&spec).unwrap_or_else(|_| job.spec.template.spec.clone());
        PodTemplate { metadata, spec }
    }
}

fn add_index_variable(container: &mut Value) {
    let Some(container) = container.as_object_mut() else { return };
    let env = container.entry("env").or_insert_with(|| json!([]));
    if env.is_null() {
        *env = json!([]);
    }
    let Some(env) = env.as_array_mut() else { return };
    if env.iter().all(|variable| variable["name"] != INDEX_VARIABLE) {
        let field = json!({"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}});
        env.push(json!({"name": INDEX_VARIABLE, "valueFrom": field}));
    }
}

/// Returns the counted and ignored failures of an index so far.
fn failures(job: &Job, indexed: &Indexed<'_>, index: usize) -> (i32, i32) {
    let Some(replaced) = indexed.replaceable.get(&index) else { return (0, 0) };
    let (counted, ignored) = (replaced.pod.index_failures, replaced.pod.index_ignored_failures);
    match verdict(job.spec.pod_failure_policy.as_ref(), &replaced.pod) {
        Verdict::Ignore => (counted, ignored.saturating_add(1)),
        _ => (counted.saturating_add(1), ignored),
    }
}

fn with_failures(annotations: &Labels, (counted, ignored): (i32, i32)) -> Labels {
    let annotations = with_label(annotations, INDEX_FAILURES, &counted.to_string());
    match ignored {
        0 => annotations,
        _ => with_label(&annotations, INDEX_IGNORED_FAILURES, &ignored.to_string()),
    }
}

/// Returns the name prefix of an index's pods. A long Job name is truncated, not the index.
pub(super) fn name_prefix(job: &str, index: usize) -> String {
    let end = format!("-{index}-");
    let room = MAX_GENERATED_BASE.saturating_sub(end.len());
    let job = if job.len() > room { job.get(..room).unwrap_or(job) } else { job };
    format!("{job}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_survives_a_long_name() {
        assert_eq!(name_prefix("work", 3), "work-3-");
        let long = name_prefix(&"w".repeat(63), 12);
        assert_eq!((long.len(), &long[50..]), (58, "wwww-12-"));
    }

    #[test]
    fn a_container_gets_its_index_variable_once() {
        let mut container = json!({"name": "c", "env": [{"name": "A", "value": "1"}]});
        add_index_variable(&mut container);
        add_index_variable(&mut container);
        let expected = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}});
        assert_eq!(container["env"], json!([{"name": "A", "value": "1"}, expected]));
        let mut plain = json!({"name": "c"});
        add_index_variable(&mut plain);
        assert_eq!(plain["env"], json!([expected]));
    }
}
