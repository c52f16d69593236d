//! Metrics of conversion webhooks, under v1.34's names.

use std::time::Duration;

use setpoint_exposition::Text;

use super::review::Failure;
use crate::metrics::{Described, SeriesTable};

/// A definition has two series for each pair of its versions, in either direction: 1,000 definitions with three versions
/// have 12,000. A series takes about 400 bytes, so this is at most 8 MB.
const MAX_SERIES: usize = 20_000;

/// From a millisecond, doubled 14 times.
const CONVERSIONS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
const CALLS: &[f64] = &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

/// The metrics, in output order: sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    CallDuration,
    Calls,
    Duration,
}

const DESCRIBED: [Described<Metric>; 3] = [
    Described {
        metric: Metric::CallDuration,
        name: "apiserver_conversion_webhook_duration_seconds",
        help: "[ALPHA] Seconds that calls of conversion webhooks took.",
        labels: &["result", "failure_type"],
        bounds: CALLS,
    },
    Described {
        metric: Metric::Calls,
        name: "apiserver_conversion_webhook_request_total",
        help: "[ALPHA] Calls of conversion webhooks, by result and type of failure.",
        labels: &["result", "failure_type"],
        bounds: &[],
    },
    Described {
        metric: Metric::Duration,
        name: "apiserver_crd_conversion_webhook_duration_seconds",
        help: "[ALPHA] Seconds that conversions by webhook took, by definition and versions.",
        labels: &["crd_name", "from_version", "to_version", "succeeded"],
        bounds: CONVERSIONS,
    },
];

/// The counters of a server's conversion webhooks.
pub(crate) struct ConversionMetrics(SeriesTable<Metric>);

impl Default for ConversionMetrics {
    fn default() -> Self {
        Self(SeriesTable::new(&DESCRIBED, MAX_SERIES))
    }
}

/// The versions of a conversion.
pub(super) struct Direction<'a> {
    pub(super) definition: &'a str,
    /// API versions, with their group.
    pub(super) from: &'a str,
    pub(super) to: &'a str,
}

impl ConversionMetrics {
    /// Records a completed call.
    pub(super) fn called<T>(&self, way: &Direction<'_>, outcome: &Result<T, Failure>, took: Duration) {
        let labels = match outcome {
            Ok(_) => ["success", ""],
            Err(failure) => ["failure", failure.why.label()],
        };
        self.0.count(Metric::Calls, &labels, 1);
        self.0.observe(Metric::CallDuration, &labels, took);
        let succeeded = if outcome.is_ok() { "true" } else { "false" };
        let labels = [way.definition, version(way.from), version(way.to), succeeded];
        self.0.observe(Metric::Duration, &labels, took);
    }

    pub(crate) fn write(&self, text: &mut Text) {
        self.0.write(text);
    }
}

fn version(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}
