//! Gauges computed on scrape, with the names Kubernetes uses.

use std::collections::BTreeMap;

use setpoint::metrics::{Labels, Metrics};

pub(crate) type Counts = BTreeMap<Labels, i64>;

/// Histogram buckets: 1 ms, doubling.
pub(crate) const SYNC_SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Counts the occurrences of each label set.
pub(crate) fn count(labels: impl Iterator<Item = Labels>) -> Counts {
    let mut counts = Counts::new();
    labels.for_each(|labels| *counts.entry(labels).or_default() += 1);
    counts
}

/// Registers a gauge that is computed on every scrape.
pub(crate) fn register_gauge(
    metrics: &Metrics,
    name: &'static str,
    help: &'static str,
    count: impl Fn() -> Counts + Send + Sync + 'static,
) {
    metrics.collect(name, help, move || {
        count().into_iter().map(|(labels, count)| (labels, count as f64)).collect()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computed_gauge_is_evaluated_on_every_scrape() {
        let metrics = Metrics::new();
        let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::<&str>::new()));
        let counted = seen.clone();
        register_gauge(&metrics, "animals", "What was seen.", move || {
            count(counted.lock().iter().map(|name| vec![("name", (*name).to_owned())]))
        });
        assert!(!metrics.encode().contains("animals"));
        seen.lock().extend(["cat", "dog", "cat"]);
        assert!(metrics.encode().contains("animals{name=\"cat\"} 2\n"), "{}", metrics.encode());
    }
}
