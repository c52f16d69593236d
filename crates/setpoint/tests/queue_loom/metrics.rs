//! The part of the metrics that the queue's files need.

#[path = "../../src/metrics/histogram.rs"]
pub(crate) mod histogram;
