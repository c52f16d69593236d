//! Metrics of zones and nodes, with the names Kubernetes uses.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::metrics::Metrics;

use super::zones::Census;

/// Histogram buckets: 1 ms, quadrupling.
const NODE_SECONDS: &[f64] = &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384];
/// Histogram buckets: 10 ms, quadrupling.
const NODES_SECONDS: &[f64] = &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84];

pub(super) struct NodeMetrics {
    metrics: Metrics,
    /// The zones at the last update.
    known: Mutex<Vec<String>>,
}

impl NodeMetrics {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, known: Mutex::default() }
    }

    /// Exports the census of all zones. A removed zone is set to no nodes, all healthy.
    pub(super) fn zones(&self, census: &BTreeMap<String, Census>) {
        let zones: Vec<String> = census.keys().cloned().collect();
        let known = std::mem::replace(&mut *self.known.lock(), zones);
        for zone in known.iter().filter(|zone| !census.contains_key(*zone)) {
            self.zone(zone, Census::default());
        }
        for (zone, census) in census {
            self.zone(zone, *census);
            self.count_eviction(zone, 0);
        }
    }

    fn zone(&self, zone: &str, Census { ready, not_ready }: Census) {
        let size = (ready + not_ready) as f64;
        let health = if size > 0.0 { 100.0 * ready as f64 / size } else { 100.0 };
        let labels = [("zone", zone)];
        let set = |name, help, value| self.metrics.set_gauge(name, help, &labels, value);
        set("node_collector_zone_size", "Nodes registered in the zone.", size);
        let help = "Percentage of the zone's nodes that are Ready.";
        set("node_collector_zone_health", help, health);
        let help = "Nodes of the zone that are not Ready.";
        set("node_collector_unhealthy_nodes_in_zone", help, not_ready as f64);
    }

    pub(super) fn node_evicted(&self, zone: &str) {
        self.count_eviction(zone, 1);
    }

    fn count_eviction(&self, zone: &str, more: u64) {
        let help = "Nodes whose pods this process has started to evict.";
        self.metrics.count("node_collector_evictions", help, &[("zone", zone)], more);
    }

    pub(super) fn observe_node_check(&self, took: Duration) {
        let help = "Seconds to update the health of one node.";
        let name = "node_collector_update_node_health_duration_seconds";
        self.metrics.observe(name, help, NODE_SECONDS, &[], took.as_secs_f64());
    }

    pub(super) fn observe_check(&self, took: Duration) {
        let help = "Seconds to update the health of all nodes.";
        let name = "node_collector_update_all_nodes_health_duration_seconds";
        self.metrics.observe(name, help, NODES_SECONDS, &[], took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_without_nodes_is_healthy_and_empty() {
        let metrics = Metrics::new();
        let counted = NodeMetrics::new(metrics.clone());
        counted.zones(&BTreeMap::from([("a".to_owned(), Census { ready: 1, not_ready: 3 })]));
        counted.node_evicted("a");
        let shows = |line: &str| assert!(metrics.encode().contains(line), "{line} in {}", metrics.encode());
        shows("node_collector_zone_health{zone=\"a\"} 25\n");
        shows("node_collector_unhealthy_nodes_in_zone{zone=\"a\"} 3\n");
        counted.zones(&BTreeMap::new());
        shows("node_collector_zone_health{zone=\"a\"} 100\n");
        shows("node_collector_zone_size{zone=\"a\"} 0\n");
        shows("node_collector_evictions_total{zone=\"a\"} 1\n");
    }
}
