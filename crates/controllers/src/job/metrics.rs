//! Metrics of Jobs, with the names Kubernetes uses.

use std::time::Duration;

use setpoint::metrics::Metrics;
use setpoint::{Event, Object};

use super::assess::Ending;
use super::indexes::Indexes;
use super::plan::Step;
use super::pod::JobPod;
use super::view::{Job, JobSpec, JobStatus, TRACKING};

/// Histogram buckets: 4 ms, doubling, fourteen in total.
const SYNC_SECONDS: &[f64] = &[
    0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384, 32.768,
    65.536,
];

#[derive(Clone)]
pub(super) struct JobMetrics(pub(super) Metrics);

/// The action that a sync took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It waited for earlier writes, or finished the Job.
    Reconciling,
    Tracking,
    PodsCreated,
    PodsDeleted,
}

impl Action {
    pub(super) fn of(step: &Step<'_>, spec: &JobSpec) -> Self {
        match step {
            Step::End | Step::Hold => Self::Reconciling,
            Step::Remove(_) => Self::PodsDeleted,
            Step::Keep if spec.is_suspended() => Self::PodsDeleted,
            Step::Create { .. } | Step::CreateIndexes(_) | Step::Wait(_) => Self::PodsCreated,
            Step::Keep => Self::Tracking,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::PodsCreated => "pods_created",
            Self::PodsDeleted => "pods_deleted",
        }
    }
}

impl JobMetrics {
    pub(super) fn count_sync(&self, job: &Job, action: Action, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        let labels = [("completion_mode", mode(job)), ("result", result), ("action", action.name())];
        let help = "Seconds that reconciles of Jobs took";
        let name = "job_controller_job_sync_duration_seconds";
        self.0.observe(name, help, SYNC_SECONDS, &labels, took.as_secs_f64());
        self.0.count(
            "job_controller_job_syncs",
            "Job reconciles, by outcome and completion mode",
            &labels,
            1,
        );
    }

    pub(super) fn ended(&self, job: &Job, ending: &Ending) {
        let labels =
            [("completion_mode", mode(job)), ("result", result(ending.success)), ("reason", &*ending.reason)];
        self.0.count("job_controller_jobs_finished", "Jobs that finished, by outcome", &labels, 1);
    }

    /// Counts an externally managed Job.
    pub(super) fn count_externally_managed(&self, manager: &str) {
        let help = "Jobs left to another controller by spec.managedBy";
        self.0.count("job_controller_jobs_by_external_controller", help, &[("controller_name", manager)], 1);
    }

    /// Records the pods and indexes that a status write counted.
    pub(super) fn counted(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let mut succeeded = difference(before.succeeded, after.succeeded);
        if job.spec.is_indexed() {
            let many =
                |text: Option<&str>| Indexes::parse(text.unwrap_or_default(), job.spec.indexes()).len();
            succeeded = many(Some(&after.completed_indexes))
                .saturating_sub(many(Some(&before.completed_indexes))) as u64;
            self.indexes(job, true, succeeded);
            let failed =
                many(after.failed_indexes.as_deref()).saturating_sub(many(before.failed_indexes.as_deref()));
            if failed > 0 {
                self.indexes(job, false, failed as u64);
            }
        }
        self.pods_finished(job, true, succeeded);
        self.pods_finished(job, false, difference(before.failed, after.failed));
    }

    fn indexes(&self, job: &Job, success: bool, count: u64) {
        let limit = if job.spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
        let help = "Finished indexes, by status and backoff limit";
        let labels = [("status", result(success)), ("backoffLimit", limit)];
        self.0.count("job_controller_job_finished_indexes", help, &labels, count);
    }

    fn pods_finished(&self, job: &Job, success: bool, count: u64) {
        let labels = [("completion_mode", mode(job)), ("result", result(success))];
        let help = "Finished pods that have been counted in the status of their Job";
        self.0.count("job_controller_job_pods_finished", help, &labels, count);
    }

    /// Counts failed pods handled by a failure policy.
    pub(super) fn handled_by_policy(&self, actions: &[&'static str]) {
        let help = "Failed pods that matched a failure policy rule, by action";
        for action in actions {
            let name = "job_controller_pod_failures_handled_by_failure_policy";
            self.0.count(name, help, &[("action", action)], 1);
        }
    }

    /// Counts created pods. `again` says whether pods have failed, and whether any are terminating.
    pub(super) fn pods_created(&self, job: &Job, again: (bool, bool), created: usize, refused: usize) {
        let only_failed = job.spec.pod_replacement_policy.as_deref() == Some("Failed");
        let reason = match again {
            (true, _) if only_failed => "recreate_failed",
            (false, false) => "new",
            (false, true) | (true, _) => "recreate_terminating_or_failed",
        };
        let help = "Pods created for Jobs, by reason and outcome";
        for (success, count) in [(true, created), (false, refused)] {
            if count > 0 {
                let labels = [("reason", reason), ("status", result(success))];
                self.0.count("job_controller_job_pods_creation", help, &labels, count as u64);
            }
        }
    }

    /// Updates the number of finished pods with a tracking finalizer.
    pub(super) fn pod_changed(&self, event: &Event) {
        let (before, after) = match event {
            Event::Added { object, .. } => (None, Some(object)),
            Event::Updated { old, new } => (Some(old), Some(new)),
            Event::Deleted { last, .. } => (Some(last), None),
        };
        let waits = |pod: Option<&Object>| pod.is_some_and(is_finished_and_uncounted);
        let event = match (waits(before), waits(after)) {
            (false, true) => "add",
            (true, false) => "delete",
            _ => return,
        };
        let help = "Changes in the set of finished pods that still have the tracking finalizer";
        let name = "job_controller_terminated_pods_tracking_finalizer";
        self.0.count(name, help, &[("event", event)], 1);
    }
}

fn is_finished_and_uncounted(pod: &Object) -> bool {
    pod.meta().has_finalizer(TRACKING) && pod.view::<JobPod>().is_ok_and(|pod| pod.phase.has_ended())
}

fn mode(job: &Job) -> &'static str {
    if job.spec.is_indexed() { "Indexed" } else { "NonIndexed" }
}

fn result(success: bool) -> &'static str {
    if success { "succeeded" } else { "failed" }
}

fn difference(before: i32, after: i32) -> u64 {
    u64::try_from(after.saturating_sub(before)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Cached;

    use super::*;
    use crate::workload::fixtures::cached;

    fn job(spec: Value) -> Cached<Job> {
        let mut job =
            json!({"metadata": {"name": "j", "namespace": "ns"}, "spec": {"selector": {}, "template": {}}});
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        cached(job)
    }

    /// Checks the metrics that `count` produces, without their common prefix.
    #[track_caller]
    fn check(count: impl FnOnce(&JobMetrics), expected: &[&str]) {
        let metrics = JobMetrics(Metrics::new());
        count(&metrics);
        let text = metrics.0.encode();
        let lines = text.lines().filter_map(|line| line.strip_prefix("job_controller_"));
        let lines: Vec<_> = lines.filter(|line| !line.contains("_seconds")).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn new_counts_in_a_status_are_exported() {
        let status = |status: Value| serde_json::from_value::<JobStatus>(status).unwrap();
        let before = status(json!({"succeeded": 1, "failed": 1, "completedIndexes": "0"}));
        let after =
            status(json!({"succeeded": 3, "failed": 2, "completedIndexes": "0,2,3", "failedIndexes": "1"}));
        check(
            |metrics| metrics.counted(&job(json!({})), &before, &after),
            &[
                "job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"failed\"} 1",
                "job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\"} 2",
            ],
        );
        let indexed = job(json!({"completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 1}));
        check(
            |metrics| metrics.counted(&indexed, &before, &after),
            &[
                "job_finished_indexes_total{status=\"failed\",backoffLimit=\"perIndex\"} 1",
                "job_finished_indexes_total{status=\"succeeded\",backoffLimit=\"perIndex\"} 2",
                "job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 1",
                "job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"} 2",
            ],
        );
        let shrunk = job(json!({"completionMode": "Indexed", "completions": 1}));
        check(
            |metrics| metrics.counted(&shrunk, &after, &before),
            &[
                "job_finished_indexes_total{status=\"succeeded\",backoffLimit=\"global\"} 0",
                "job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 0",
                "job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"} 0",
            ],
        );
    }

    #[test]
    fn pods_are_new_or_replace_what_failed_or_ends() {
        let check = |policy: Option<&str>, again: (bool, bool), reason: &str| {
            let job = job(json!({"podReplacementPolicy": policy}));
            let (made, refused) = (
                format!("job_pods_creation_total{{reason=\"{reason}\",status=\"succeeded\"}} 2"),
                format!("job_pods_creation_total{{reason=\"{reason}\",status=\"failed\"}} 1"),
            );
            check(|metrics| metrics.pods_created(&job, again, 2, 1), &[&refused, &made]);
        };
        check(None, (false, false), "new");
        check(None, (false, true), "recreate_terminating_or_failed");
        check(Some("TerminatingOrFailed"), (true, false), "recreate_terminating_or_failed");
        check(Some("Failed"), (true, true), "recreate_failed");
        check(Some("Failed"), (false, false), "new");
    }

    #[test]
    fn a_finished_pod_is_counted_when_its_finalizer_is_pending_and_when_it_is_removed() {
        let pod = |phase: &str, tracked: bool| {
            let finalizers = if tracked { vec![TRACKING] } else { vec![] };
            let pod =
                json!({"metadata": {"name": "p", "finalizers": finalizers}, "status": {"phase": phase}});
            cached::<JobPod>(pod).object().clone()
        };
        let updated = |old: Object, new: Object| Event::Updated { old, new };
        check(
            |metrics| {
                metrics.pod_changed(&updated(pod("Running", true), pod("Failed", true)));
                metrics.pod_changed(&updated(pod("Failed", true), pod("Failed", true)));
                metrics.pod_changed(&updated(pod("Failed", true), pod("Failed", false)));
                metrics.pod_changed(&updated(pod("Running", false), pod("Failed", false)));
            },
            &[
                "terminated_pods_tracking_finalizer_total{event=\"add\"} 1",
                "terminated_pods_tracking_finalizer_total{event=\"delete\"} 1",
            ],
        );
    }

    #[test]
    fn outcomes_and_syncs_are_counted_by_result() {
        let job = job(json!({"suspend": true}));
        check(
            |metrics| {
                metrics.ended(&job, &Ending::completions_reached());
                let action = Action::of(&Step::Keep, &job.spec);
                metrics.count_sync(&job, action, true, Duration::from_millis(5));
                metrics.count_externally_managed("example.com/queue");
                metrics.handled_by_policy(&["Ignore", "Ignore"]);
            },
            &[
                "job_syncs_total{completion_mode=\"NonIndexed\",result=\"success\",action=\"pods_deleted\"} 1",
                "jobs_by_external_controller_total{controller_name=\"example.com/queue\"} 1",
                "jobs_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\",reason=\"CompletionsReached\"} 1",
                "pod_failures_handled_by_failure_policy_total{action=\"Ignore\"} 2",
            ],
        );
    }
}
