//! Metrics of webhooks and policies, under v1.34's names.
//!
//! A webhook has at most a few dozen series: a sort, four operations, and codes up to 600; a binding of a policy has at
//! most 16. Those of the configurations there have ever been are kept, up to [`MAX_SERIES`].

use std::time::Duration;

use setpoint_exposition::Text;

use super::policy::OUT_OF_BUDGET;
use super::webhooks::{Failure, Webhook, WebhookType};
use crate::metrics::{Described, SeriesTable};

/// 100 webhooks with 50 series each, for 7 metrics, are 35,000. A series takes about 200 bytes, so this is at most 10
/// MB. Further series are not counted.
const MAX_SERIES: usize = 50_000;

const DURATIONS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const EVALUATIONS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const CHECKS: &[f64] = &[0.0000005, 0.001, 0.01, 0.1, 1.0];

/// The metrics, in output order: sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    ConditionErrors,
    ConditionDuration,
    ConditionExclusions,
    Duration,
    FailOpen,
    Rejections,
    Requests,
    MutationDuration,
    Mutations,
    ValidationDuration,
    Validations,
}

const DESCRIBED: [Described<Metric>; 11] = [
    Described {
        metric: Metric::ConditionErrors,
        name: "apiserver_admission_match_condition_evaluation_errors_total",
        help: "[ALPHA] Match conditions that failed, by webhook or policy.",
        labels: &["name", "kind", "type", "operation"],
        bounds: &[],
    },
    Described {
        metric: Metric::ConditionDuration,
        name: "apiserver_admission_match_condition_evaluation_seconds",
        help: "[ALPHA] Seconds to evaluate all match conditions of a webhook or policy.",
        labels: &["name", "kind", "type", "operation"],
        bounds: EVALUATIONS,
    },
    Described {
        metric: Metric::ConditionExclusions,
        name: "apiserver_admission_match_condition_exclusions_total",
        help: "[ALPHA] Requests that the match conditions of a webhook exclude.",
        labels: &["name", "kind", "type", "operation"],
        bounds: &[],
    },
    Described {
        metric: Metric::Duration,
        name: "apiserver_admission_webhook_admission_duration_seconds",
        help: "[STABLE] Duration of webhook calls in seconds.",
        labels: &["name", "type", "operation", "rejected"],
        bounds: DURATIONS,
    },
    Described {
        metric: Metric::FailOpen,
        name: "apiserver_admission_webhook_fail_open_count",
        help: "[ALPHA] Failed calls of a webhook that were ignored.",
        labels: &["name", "type"],
        bounds: &[],
    },
    Described {
        metric: Metric::Rejections,
        name: "apiserver_admission_webhook_rejection_count",
        help: "[ALPHA] Requests rejected by a webhook, by error type.",
        labels: &["name", "type", "operation", "error_type", "rejection_code"],
        bounds: &[],
    },
    Described {
        metric: Metric::Requests,
        name: "apiserver_admission_webhook_request_total",
        help: "[ALPHA] Calls of a webhook, by status code.",
        labels: &["name", "type", "operation", "code", "rejected"],
        bounds: &[],
    },
    Described {
        metric: Metric::MutationDuration,
        name: "apiserver_mutating_admission_policy_check_duration_seconds",
        help: "[ALPHA] Duration of mutations of a policy in seconds, by binding.",
        labels: &["policy", "policy_binding", "error_type"],
        bounds: CHECKS,
    },
    Described {
        metric: Metric::Mutations,
        name: "apiserver_mutating_admission_policy_check_total",
        help: "[ALPHA] Mutations of a policy, by binding and error type.",
        labels: &["policy", "policy_binding", "error_type"],
        bounds: &[],
    },
    Described {
        metric: Metric::ValidationDuration,
        name: "apiserver_validating_admission_policy_check_duration_seconds",
        help: "[BETA] Duration of failed validations of a policy in seconds, by binding and enforcement action.",
        labels: &["policy", "policy_binding", "error_type", "enforcement_action"],
        bounds: CHECKS,
    },
    Described {
        metric: Metric::Validations,
        name: "apiserver_validating_admission_policy_check_total",
        help: "[BETA] Failed validations of a policy, by binding and enforcement action.",
        labels: &["policy", "policy_binding", "error_type", "enforcement_action"],
        bounds: &[],
    },
];

/// The counters of a server's webhooks and policies.
pub(crate) struct AdmissionMetrics(SeriesTable<Metric>);

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self(SeriesTable::new(&DESCRIBED, MAX_SERIES))
    }
}

impl WebhookType {
    const fn label(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }

    /// v1.34 uses a different label in the metrics of match conditions.
    const fn condition_label(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validate",
        }
    }
}

impl AdmissionMetrics {
    /// Records a completed call.
    pub(super) fn called<T>(
        &self,
        webhook: &Webhook,
        sort: WebhookType,
        operation: &str,
        outcome: &Result<T, Failure>,
        took: Duration,
    ) {
        let (error, code) = match outcome {
            Ok(_) => (None, 200),
            Err(Failure::Calling(failed)) if webhook.ignores_failures => (None, failed.code),
            Err(Failure::Calling(failed)) => (Some("calling_webhook_error"), failed.code),
            Err(Failure::Denied(status)) => (Some("no_error"), status.code),
            Err(Failure::Internal(_)) => (Some("apiserver_internal_error"), 0),
            // v1.34 does not count calls that the client cancelled.
            Err(Failure::GivenUp(_)) => return,
        };
        let (name, kind) = (webhook.name.as_str(), sort.label());
        let (code, rejected) = (code.min(600).to_string(), error.is_some().to_string());
        if let Some(error) = error {
            self.0.count(Metric::Rejections, &[name, kind, operation, error, &code], 1);
        }
        self.0.count(Metric::Requests, &[name, kind, operation, &code, &rejected], 1);
        self.0.observe(Metric::Duration, &[name, kind, operation, &rejected], took);
    }

    pub(super) fn failed_open(&self, webhook: &Webhook, sort: WebhookType) {
        self.0.count(Metric::FailOpen, &[&webhook.name, sort.label()], 1);
    }

    /// The metrics of the match conditions of a webhook.
    pub(super) fn conditions<'a>(
        &'a self,
        webhook: &'a Webhook,
        sort: WebhookType,
        operation: &'a str,
    ) -> OfConditions<'a> {
        OfConditions { metrics: self, labels: [&webhook.name, "webhook", sort.condition_label(), operation] }
    }

    /// The metrics of the match conditions of a policy. v1.34 says `validate` of both sorts.
    pub(super) fn policy_conditions<'a>(&'a self, policy: &'a str, operation: &'a str) -> OfConditions<'a> {
        OfConditions { metrics: self, labels: [policy, "policy", "validate", operation] }
    }

    /// A mutation of a policy was evaluated.
    pub(super) fn mutated(&self, policy: &str, binding: &str, error: Option<&str>, took: Duration) {
        let labels = [policy, binding, error_type(error)];
        self.0.count(Metric::Mutations, &labels, 1);
        self.0.observe(Metric::MutationDuration, &labels, took);
    }

    /// A validation of a policy failed, and an action was taken.
    pub(super) fn validated(&self, policy: &str, binding: &str, message: &str, action: &str, took: Duration) {
        let labels = [policy, binding, error_type(Some(message)), action];
        self.0.count(Metric::Validations, &labels, 1);
        self.0.observe(Metric::ValidationDuration, &labels, took);
    }

    pub(crate) fn write(&self, text: &mut Text) {
        self.0.write(text);
    }
}

/// v1.34 tells errors apart by their message.
fn error_type(message: Option<&str>) -> &'static str {
    match message {
        None => "no_error",
        Some(message) if message.starts_with("compilation") => "compile_error",
        Some(message) if message.starts_with(OUT_OF_BUDGET) => "out_of_budget",
        Some(_) => "invalid_error",
    }
}

pub(super) struct OfConditions<'a> {
    metrics: &'a AdmissionMetrics,
    labels: [&'a str; 4],
}

impl OfConditions<'_> {
    pub(super) fn evaluated(&self, took: Duration) {
        self.metrics.0.observe(Metric::ConditionDuration, &self.labels, took);
    }

    pub(super) fn excluded(&self) {
        self.metrics.0.count(Metric::ConditionExclusions, &self.labels, 1);
    }

    pub(super) fn failed(&self, failures: usize) {
        let failures = u64::try_from(failures).unwrap_or(u64::MAX);
        self.metrics.0.count(Metric::ConditionErrors, &self.labels, failures);
    }
}
