//! What is counted of webhooks, under v1.34's names.
//!
//! A webhook has at most a few dozen series: a sort, four operations, and codes up to 600. Those of the configurations
//! there have ever been are kept, up to [`MOST_SERIES`].

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_exposition::Text;

use super::Sort;
use super::call::Failure;
use super::config::Webhook;

/// 100 webhooks with 50 series each, of 7 metrics, are 35,000; a series takes some 200 bytes, so this is at most 10 MB.
/// New series are not counted beyond that.
const MOST_SERIES: usize = 50_000;

const DURATIONS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const EVALUATIONS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// The metrics, in the order that they are written in: that of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    ConditionErrors,
    ConditionDuration,
    ConditionExclusions,
    Duration,
    FailOpen,
    Rejections,
    Requests,
}

struct Described {
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    /// The bounds of a histogram; a counter has none.
    bounds: &'static [f64],
}

const DESCRIBED: [Described; 7] = [
    Described {
        metric: Metric::ConditionErrors,
        name: "apiserver_admission_match_condition_evaluation_errors_total",
        help: "[ALPHA] Match conditions that failed, by the webhook they are of.",
        labels: &["name", "kind", "type", "operation"],
        bounds: &[],
    },
    Described {
        metric: Metric::ConditionDuration,
        name: "apiserver_admission_match_condition_evaluation_seconds",
        help: "[ALPHA] Seconds to evaluate all match conditions of a webhook.",
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
        help: "[STABLE] Seconds that calls of a webhook took.",
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
        help: "[ALPHA] Requests rejected because of a webhook, by the type of the error.",
        labels: &["name", "type", "operation", "error_type", "rejection_code"],
        bounds: &[],
    },
    Described {
        metric: Metric::Requests,
        name: "apiserver_admission_webhook_request_total",
        help: "[ALPHA] Calls of a webhook, by the code of the outcome.",
        labels: &["name", "type", "operation", "code", "rejected"],
        bounds: &[],
    },
];

/// The counters of a server's webhooks.
#[derive(Default)]
pub(crate) struct WebhookMetrics(Mutex<BTreeMap<(Metric, Vec<String>), Series>>);

#[derive(Clone, Default)]
struct Series {
    count: u64,
    sum: f64,
    /// How many were not longer than each bound.
    buckets: Vec<u64>,
}

impl Sort {
    const fn label(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }

    /// v1.34 has another word in the metrics of match conditions.
    const fn condition_label(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validate",
        }
    }
}

impl WebhookMetrics {
    fn change(&self, metric: Metric, labels: &[&str], change: impl FnOnce(&mut Series)) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut all = self.0.lock();
        let has_room = all.len() < MOST_SERIES;
        match all.entry((metric, labels)) {
            std::collections::btree_map::Entry::Vacant(_) if !has_room => {}
            entry => change(entry.or_default()),
        }
    }

    fn count(&self, metric: Metric, labels: &[&str], by: u64) {
        self.change(metric, labels, |series| series.count += by);
    }

    fn observe(&self, metric: Metric, bounds: &[f64], labels: &[&str], duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.change(metric, labels, |series| {
            series.buckets.resize(bounds.len(), 0);
            let reached = bounds.iter().zip(&mut series.buckets).filter(|(bound, _)| seconds <= **bound);
            reached.for_each(|(_, bucket)| *bucket += 1);
            series.count += 1;
            series.sum += seconds;
        });
    }

    /// A call has ended.
    pub(super) fn called<T>(
        &self,
        webhook: &Webhook,
        sort: Sort,
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
            // v1.34 does not count calls that the client gave up.
            Err(Failure::GivenUp(_)) => return,
        };
        let (name, kind) = (webhook.name.as_str(), sort.label());
        let (code, rejected) = (code.min(600).to_string(), error.is_some().to_string());
        if let Some(error) = error {
            self.count(Metric::Rejections, &[name, kind, operation, error, &code], 1);
        }
        self.count(Metric::Requests, &[name, kind, operation, &code, &rejected], 1);
        self.observe(Metric::Duration, DURATIONS, &[name, kind, operation, &rejected], took);
    }

    pub(super) fn failed_open(&self, webhook: &Webhook, sort: Sort) {
        self.count(Metric::FailOpen, &[&webhook.name, sort.label()], 1);
    }

    /// The metrics of the match conditions of a webhook.
    pub(super) fn conditions<'a>(
        &'a self,
        webhook: &'a Webhook,
        sort: Sort,
        operation: &'a str,
    ) -> OfConditions<'a> {
        OfConditions { metrics: self, labels: [&webhook.name, "webhook", sort.condition_label(), operation] }
    }

    pub(crate) fn write(&self, text: &mut Text) {
        let all = self.0.lock();
        for described in &DESCRIBED {
            let kind = if described.bounds.is_empty() { "counter" } else { "histogram" };
            text.head(described.name, kind, described.help);
            let of_metric = all.iter().filter(|((metric, _), _)| *metric == described.metric);
            for ((_, values), series) in of_metric {
                let values = values.iter().map(String::as_str);
                let labels: Vec<(&str, &str)> = described.labels.iter().copied().zip(values).collect();
                match described.bounds {
                    [] => text.sample(described.name, &labels, series.count),
                    bounds => {
                        let buckets = bounds.iter().copied().zip(series.buckets.iter().copied());
                        text.histogram(described.name, &labels, buckets, series.count, series.sum);
                    }
                }
            }
        }
    }
}

pub(super) struct OfConditions<'a> {
    metrics: &'a WebhookMetrics,
    labels: [&'a str; 4],
}

impl OfConditions<'_> {
    pub(super) fn evaluated(&self, took: Duration) {
        self.metrics.observe(Metric::ConditionDuration, EVALUATIONS, &self.labels, took);
    }

    pub(super) fn excluded(&self) {
        self.metrics.count(Metric::ConditionExclusions, &self.labels, 1);
    }

    pub(super) fn failed(&self, failures: usize) {
        let failures = u64::try_from(failures).unwrap_or(u64::MAX);
        self.metrics.count(Metric::ConditionErrors, &self.labels, failures);
    }
}
