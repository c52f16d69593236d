//! What the queue's files need of the metrics.

#[path = "../../src/metrics/histogram.rs"]
pub(crate) mod histogram;
