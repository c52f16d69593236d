//! Metrics of autoscalers, with the names Kubernetes uses.

use std::cmp::Ordering;
use std::time::Duration;

use setpoint::metrics::Metrics;

use crate::metrics::SYNC_SECONDS;

pub(super) struct AutoscalerMetrics(pub(super) Metrics);

/// The scaling action taken, or proposed by a single metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    #[default]
    None,
    ScaleUp,
    ScaleDown,
}

/// The kind of error: an invalid spec, or an internal error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    None,
    Spec,
    Internal,
}

impl Action {
    pub(super) fn from(current: i32, wanted: i32) -> Self {
        match wanted.cmp(&current) {
            Ordering::Less => Self::ScaleDown,
            Ordering::Equal => Self::None,
            Ordering::Greater => Self::ScaleUp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
        }
    }
}

impl ErrorKind {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }
}

impl AutoscalerMetrics {
    /// Records a reconcile.
    pub(super) fn reconciled(&self, action: Action, error_kind: ErrorKind, took: Duration) {
        let labels = [("action", action.name()), ("error", error_kind.name())];
        let help = "Evaluations of autoscalers, by action and first error";
        self.0.count("horizontal_pod_autoscaler_controller_reconciliations", help, &labels, 1);
        let help = "Seconds to evaluate an autoscaler";
        let name = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds";
        self.0.observe(name, help, SYNC_SECONDS, &labels, took.as_secs_f64());
    }

    /// Records the evaluation of a metric.
    pub(super) fn computed(&self, metric: &str, action: Action, error_kind: ErrorKind, took: Duration) {
        let labels = [("action", action.name()), ("error", error_kind.name()), ("metric_type", metric)];
        let help = "Evaluations of single metrics, by type, action and error";
        self.0.count("horizontal_pod_autoscaler_controller_metric_computation", help, &labels, 1);
        let help = "Seconds to evaluate a single metric";
        let name = "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds";
        self.0.observe(name, help, SYNC_SECONDS, &labels, took.as_secs_f64());
    }
}
