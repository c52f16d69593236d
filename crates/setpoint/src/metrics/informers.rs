//! Informer metrics, under the names of Kubernetes 1.36.

use super::histogram::Histogram;
use super::text::Families;
use super::{Labels, Sources};

/// A set of informers with metrics.
pub(crate) trait InformerStats: Send + Sync {
    fn metrics(&self) -> Vec<InformerMetrics>;
}

/// A snapshot of an informer's metrics.
pub(crate) struct InformerMetrics {
    /// The informer's selection.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// Changes received and not yet passed to handlers.
    pub(crate) queued: usize,
    /// The time from receiving a change until every handler has been notified.
    pub(crate) seconds: Histogram,
    /// The newest version in the cache.
    pub(crate) revision: u64,
    /// Objects and changes that could not be decoded and were skipped.
    pub(crate) undecodable: u64,
    /// How often the cache was found to differ from a list.
    pub(crate) inconsistencies: u64,
}

impl InformerMetrics {
    fn labels(&self) -> Labels {
        vec![
            ("group", self.group.clone()),
            ("name", self.name.clone()),
            ("resource", self.resource.clone()),
            ("version", self.version.clone()),
        ]
    }
}

impl Sources {
    pub(super) fn encode_informers(&self, families: &mut Families) {
        let informers = self.informers.lock().clone();
        let informers: Vec<_> = informers.iter().filter_map(|stats| stats.upgrade()).collect();
        let metrics: Vec<InformerMetrics> = informers.iter().flat_map(|stats| stats.metrics()).collect();
        if metrics.is_empty() {
            return;
        }
        families.add(
            "informer_queued_items",
            "Number of items currently queued in the FIFO of an informer.",
            "gauge",
            metrics.iter().map(|of| (of.labels(), of.queued as f64)),
        );
        families.add_histograms(
            "informer_processing_latency_seconds",
            "Time from the arrival of a change until every handler has received it.",
            metrics.iter().map(|of| (of.labels(), &of.seconds)),
        );
        families.add(
            "informer_store_resource_version",
            "The newest resource version that the informer's store shows.",
            "gauge",
            metrics.iter().map(|of| (of.labels(), of.revision as f64)),
        );
        families.add(
            "informer_undecodable_objects_total",
            "Total number of objects and changes that were skipped because they could not be decoded.",
            "counter",
            metrics.iter().map(|of| (of.labels(), of.undecodable as f64)),
        );
        families.add(
            "informer_inconsistencies_total",
            "Total number of times that the informer's store was found to differ from a list.",
            "counter",
            metrics.iter().map(|of| (of.labels(), of.inconsistencies as f64)),
        );
    }
}
