//! Metrics of slices and of writes to them, with v1.34's names.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use setpoint::Key;
use setpoint::metrics::Metrics;

use super::address::Family;
use super::changes::Changes;
use super::slice::{Endpoint, EndpointKey, PortsKey, ports_key};

/// The metric names of one controller.
pub(crate) struct Names {
    pub(crate) added: MetricName,
    /// Not every controller has this metric.
    pub(crate) updated: Option<MetricName>,
    pub(crate) removed: MetricName,
    pub(crate) endpoints: MetricName,
    pub(crate) slices: MetricName,
    pub(crate) wanted: MetricName,
    pub(crate) changes: MetricName,
}

/// A metric name and its help text.
pub(crate) type MetricName = (&'static str, &'static str);

/// Histogram buckets: 2, doubling, fifteen in total.
pub(crate) const COUNT_BUCKETS: &[f64] =
    &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0];

pub(crate) struct SliceMetrics {
    metrics: Metrics,
    names: &'static Names,
    /// The maximum number of endpoints per slice.
    max_endpoints: usize,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    /// Keyed by address family too if a controller plans the families separately.
    by_owner: BTreeMap<(Key, Option<Family>), Packing>,
    total: Packing,
}

/// How an owner's endpoints are packed.
#[derive(Clone, Copy, Default)]
struct Packing {
    endpoints: usize,
    slices: usize,
    /// The number of slices if each were full.
    wanted: usize,
}

impl SliceMetrics {
    pub(crate) fn new(metrics: &Metrics, names: &'static Names, max_endpoints: usize) -> Self {
        Self {
            metrics: metrics.clone(),
            names,
            max_endpoints: max_endpoints.max(1),
            totals: Mutex::default(),
        }
    }

    /// Counts a slice write.
    pub(crate) fn count_write(&self, operation: &str) {
        let (name, help) = self.names.changes;
        self.metrics.count_as(name, help, &[("operation", operation)], 1);
    }

    /// Records the planned slices of an owner, of one family or all.
    pub(crate) fn planned(&self, owner: &Key, family: Option<Family>, changes: &Changes) {
        let endpoint_changes = EndpointChanges::of(changes);
        let observe = |(name, help): MetricName, count: usize| {
            self.metrics.observe(name, help, COUNT_BUCKETS, &[], count as f64);
        };
        observe(self.names.added, endpoint_changes.added);
        observe(self.names.removed, endpoint_changes.removed);
        if let Some(updated) = self.names.updated {
            observe(updated, endpoint_changes.updated);
        }
        let packing = Packing::of(changes, self.max_endpoints);
        let mut totals = self.totals.lock();
        let before = totals.by_owner.insert((owner.clone(), family), packing).unwrap_or_default();
        totals.total = totals.total.plus(packing).minus(before);
        self.set_gauges(&totals.total);
    }

    /// Forgets a deleted owner.
    pub(crate) fn forget(&self, owner: &Key) {
        let mut totals = self.totals.lock();
        for family in [None, Some(Family::IPv4), Some(Family::IPv6)] {
            if let Some(before) = totals.by_owner.remove(&(owner.clone(), family)) {
                totals.total = totals.total.minus(before);
                self.set_gauges(&totals.total);
            }
        }
    }

    fn set_gauges(&self, total: &Packing) {
        for ((name, help), value) in [
            (self.names.endpoints, total.endpoints),
            (self.names.slices, total.slices),
            (self.names.wanted, total.wanted),
        ] {
            self.metrics.set_gauge(name, help, &[], value as f64);
        }
    }
}

impl Packing {
    fn of(changes: &Changes, max_endpoints: usize) -> Self {
        let drafts = changes.create.iter().chain(&changes.update);
        let drafts =
            drafts.map(|draft| ((Some(draft.family), ports_key(draft.ports.clone())), draft.endpoints.len()));
        let unchanged = changes.unchanged.iter();
        let unchanged =
            unchanged.map(|slice| ((slice.address_type, slice.ports_key()), slice.endpoints.len()));
        let mut by_ports: BTreeMap<(Option<Family>, PortsKey), usize> = BTreeMap::new();
        let mut slices = 0;
        for (ports, endpoints) in drafts.chain(unchanged) {
            slices += 1;
            *by_ports.entry(ports).or_default() += endpoints;
        }
        let wanted = by_ports.values().map(|endpoints| endpoints.div_ceil(max_endpoints)).sum::<usize>();
        Self { endpoints: by_ports.values().sum(), slices, wanted: wanted.max(1) }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            endpoints: self.endpoints + other.endpoints,
            slices: self.slices + other.slices,
            wanted: self.wanted + other.wanted,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            endpoints: self.endpoints.saturating_sub(other.endpoints),
            slices: self.slices.saturating_sub(other.slices),
            wanted: self.wanted.saturating_sub(other.wanted),
        }
    }
}

/// The number of endpoints added, updated and removed.
#[derive(Default)]
struct EndpointChanges {
    added: usize,
    updated: usize,
    removed: usize,
}

impl EndpointChanges {
    fn of(changes: &Changes) -> Self {
        let origins = changes.update.iter().filter_map(|draft| draft.origin.as_ref());
        let before = origins.chain(&changes.delete).flat_map(|slice| &slice.endpoints);
        let mut before: BTreeMap<EndpointKey, &Endpoint> =
            before.map(|endpoint| (endpoint.key(), endpoint)).collect();
        let mut endpoint_changes = Self::default();
        for endpoint in changes.create.iter().chain(&changes.update).flat_map(|draft| &draft.endpoints) {
            match before.remove(&endpoint.key()) {
                None => endpoint_changes.added += 1,
                Some(old) => endpoint_changes.updated += usize::from(!old.same_state(endpoint)),
            }
        }
        endpoint_changes.removed = before.len();
        endpoint_changes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint::Cached;

    use super::*;
    use crate::discovery::changes::Draft;
    use crate::discovery::slice::Slice;
    use crate::workload::fixtures::cached;

    const NAMES: Names = Names {
        added: ("added", ""),
        updated: Some(("updated", "")),
        removed: ("removed", ""),
        endpoints: ("endpoints", ""),
        slices: ("slices", ""),
        wanted: ("wanted", ""),
        changes: ("changes", ""),
    };

    fn slice(name: &str, ips: &[&str]) -> Cached<Slice> {
        let endpoints: Vec<_> = ips.iter().map(|ip| json!({"addresses": [ip]})).collect();
        cached(json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
            "addressType": "IPv4", "endpoints": endpoints}))
    }

    fn draft(origin: Option<Cached<Slice>>, ips: &[&str]) -> Draft {
        let like = slice("like", ips);
        Draft {
            origin,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            family: Family::IPv4,
            ports: Vec::new(),
            endpoints: like.endpoints.clone(),
        }
    }

    #[test]
    fn endpoints_and_slices_are_counted_as_they_come_and_go() {
        let metrics = Metrics::new();
        let counted = SliceMetrics::new(&metrics, &NAMES, 2);
        let owner = Key::namespaced("ns", "s");
        let changes = Changes {
            create: vec![draft(None, &["10.0.0.1", "10.0.0.2", "10.0.0.3"])],
            ..Changes::default()
        };
        counted.planned(&owner, None, &changes);
        counted.count_write("create");
        let shows = |lines: &[&str]| {
            let text = metrics.encode();
            lines.iter().for_each(|line| assert!(text.contains(&format!("\n{line}\n")), "{line} in {text}"));
        };
        shows(&[
            "endpoints 3",
            "slices 1",
            "wanted 2",
            "added_sum 3",
            "removed_sum 0",
            "changes{operation=\"create\"} 1",
        ]);
        let old = slice("a", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let changes =
            Changes { update: vec![draft(Some(old), &["10.0.0.3", "10.0.0.4"])], ..Changes::default() };
        counted.planned(&owner, None, &changes);
        shows(&[
            "endpoints 2",
            "slices 1",
            "wanted 1",
            "added_sum 4",
            "updated_sum 0",
            "removed_sum 2",
            "added_count 2",
        ]);
        counted.forget(&owner);
        shows(&["endpoints 0", "slices 0", "wanted 0"]);
    }
}
