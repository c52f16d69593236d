//! Typed view of a Job.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use setpoint::LabelSelector;

use super::failure_policy::FailurePolicy;
use super::success_policy::SuccessPolicy;
use crate::workload::condition::{self, Condition};
use crate::workload::encoding::{is_zero, one};
use crate::workload::owners::Owner;
use crate::workload::template::PodTemplate;

/// The finalizer that keeps a pod until it is counted.
pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The default `managedBy`.
const OURSELVES: &str = "kubernetes.io/job-controller";

pub(super) const SUSPENDED: &str = "Suspended";
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
const COMPLETE: &str = "Complete";
const FAILED: &str = "Failed";

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(super) spec: JobSpec,
    #[serde(default)]
    pub(super) status: JobStatus,
}

setpoint::view!(Job of k8s_openapi::api::batch::v1::Job);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobSpec {
    #[serde(default = "one")]
    pub(super) parallelism: i32,
    #[serde(default)]
    pub(super) completions: Option<i32>,
    #[serde(default)]
    pub(super) active_deadline_seconds: Option<i64>,
    #[serde(default)]
    pub(super) pod_failure_policy: Option<FailurePolicy>,
    #[serde(default)]
    pub(super) success_policy: Option<SuccessPolicy>,
    #[serde(default = "default_backoff_limit")]
    pub(super) backoff_limit: i32,
    #[serde(default)]
    pub(super) backoff_limit_per_index: Option<i32>,
    #[serde(default)]
    pub(super) max_failed_indexes: Option<i32>,
    pub(super) selector: LabelSelector,
    pub(super) template: PodTemplate,
    #[serde(default)]
    pub(super) completion_mode: CompletionMode,
    #[serde(default)]
    pub(super) suspend: Option<bool>,
    #[serde(default)]
    pub(super) pod_replacement_policy: Option<Box<str>>,
    #[serde(default)]
    managed_by: Option<Box<str>>,
    #[serde(default)]
    ttl_seconds_after_finished: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum CompletionMode {
    #[default]
    NonIndexed,
    Indexed,
    /// A mode of a later version.
    #[serde(untagged)]
    Unknown(Box<str>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completion_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) active: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) succeeded: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) failed: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terminating: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) completed_indexes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_indexes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uncounted_terminated_pods: Option<Uncounted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready: Option<i32>,
}

/// Uids of finished pods that are not counted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Uncounted {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) succeeded: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failed: Vec<Box<str>>,
}

fn default_backoff_limit() -> i32 {
    6
}

impl Owner for Job {
    fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}

impl Job {
    /// Whether it has finished, successfully or not.
    pub(crate) fn is_finished(&self) -> bool {
        self.status.finished().is_some()
    }

    /// Whether it has succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.status.has_true_condition(COMPLETE)
    }

    /// When it finished.
    pub(crate) fn finished_at(&self) -> Option<Timestamp> {
        self.status.finished()?.last_transition_time
    }

    /// The type of its final condition.
    pub(crate) fn finished_as(&self) -> Option<&str> {
        self.status.finished().map(|condition| &*condition.r#type)
    }

    pub(crate) fn ttl_seconds_after_finished(&self) -> Option<i32> {
        self.spec.ttl_seconds_after_finished
    }

    /// When it started.
    pub(crate) fn start_time(&self) -> Option<Timestamp> {
        self.status.start_time
    }

    pub(crate) fn completion_time(&self) -> Option<Timestamp> {
        self.status.completion_time
    }

    /// Whether another controller manages it.
    pub(super) fn is_managed_elsewhere(&self) -> bool {
        self.other_manager().is_some()
    }

    /// The other controller that manages it, if any.
    pub(super) fn other_manager(&self) -> Option<&str> {
        self.spec.managed_by.as_deref().filter(|manager| *manager != OURSELVES)
    }
}

impl JobSpec {
    pub(super) fn is_suspended(&self) -> bool {
        self.suspend == Some(true)
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.completion_mode == CompletionMode::Indexed
    }

    /// The number of indexes; zero for non-indexed Jobs.
    pub(super) fn indexes(&self) -> usize {
        let completions = if self.is_indexed() { self.completions } else { None };
        completions.and_then(|completions| usize::try_from(completions).ok()).unwrap_or(0)
    }

    /// Whether pods are only replaced after they have failed, not when they start terminating.
    pub(super) fn replaces_only_failed(&self) -> bool {
        self.pod_replacement_policy.as_deref() == Some("Failed") || self.pod_failure_policy.is_some()
    }

    /// Whether containers are restarted in place.
    pub(super) fn restarts_on_failure(&self) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct PodSpec<'a> {
            #[serde(borrow)]
            restart_policy: Option<std::borrow::Cow<'a, str>>,
        }
        let spec: PodSpec<'_> = serde_json::from_str(self.template.spec.get()).unwrap_or_default();
        spec.restart_policy.as_deref() == Some("OnFailure")
    }
}

impl JobStatus {
    /// Whether a condition of this type is true.
    pub(super) fn has_true_condition(&self, r#type: &str) -> bool {
        condition::find(&self.conditions, r#type).is_some_and(Condition::is_true)
    }

    fn finished(&self) -> Option<&Condition> {
        let ended = |one: &&Condition| matches!(&*one.r#type, COMPLETE | FAILED) && one.is_true();
        self.conditions.iter().find(ended)
    }

    pub(super) fn uncounted(&mut self) -> &mut Uncounted {
        self.uncounted_terminated_pods.get_or_insert_default()
    }

    /// Updates a condition, or adds it unless it is false. Returns whether anything changed.
    pub(super) fn ensure_condition(&mut self, new: Condition) -> bool {
        match self.conditions.iter_mut().find(|known| known.r#type == new.r#type) {
            Some(known)
                if (&known.status, &known.reason, &known.message)
                    == (&new.status, &new.reason, &new.message) =>
            {
                false
            }
            Some(known) => {
                *known = new;
                true
            }
            None if new.status == "False" => false,
            None => {
                self.conditions.push(new);
                true
            }
        }
    }
}

/// The final condition type.
pub(super) fn final_condition_type(success: bool) -> &'static str {
    if success { COMPLETE } else { FAILED }
}

/// The condition type that announces the outcome before all pods have terminated.
pub(super) fn announcing_condition_type(success: bool) -> &'static str {
    if success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
}
