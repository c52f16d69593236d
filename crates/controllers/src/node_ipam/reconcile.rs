//! Allocates the next free CIDR to a node without one.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder};

use super::Node;
use super::ranges::{Allocations, RangeUsage};

pub(super) struct Allocator {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) nodes: Lister<Node>,
    pub(super) allocations: Arc<Mutex<Allocations>>,
    pub(super) metrics: Metrics,
}

impl Reconciler for Allocator {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key)?.filter(|node| !node.meta().is_being_deleted()) else {
            return Ok(Outcome::Settled);
        };
        if !node.spec.pod_cidrs.is_empty() {
            return Ok(Outcome::Settled);
        }
        let ranges = self.allocations.lock().allocate(key.name());
        self.export_usage();
        let Some(ranges) = ranges else {
            self.event(&node, "CIDRNotAvailable");
            let why = "there are no remaining CIDRs left to allocate in the accepted range";
            return Err(ReconcileError::Retry {
                attempted: format!("allocate a pod CIDR to node {key}"),
                source: Some(why.into()),
            });
        };
        let assigned = self.assign(&node, &ranges).await;
        if assigned.is_err() {
            // Keep the allocation: the write may have succeeded with a lost response.
            self.event(&node, "CIDRAssignmentFailed");
        }
        assigned.map(|()| Outcome::Settled)
    }
}

/// Histogram buckets: powers of five.
const TRIES: &[f64] = &[1.0, 5.0, 25.0, 125.0, 625.0];

/// Exports the usage of a CIDR, with the metric names Kubernetes uses.
pub(super) fn export(metrics: &Metrics, usage: &RangeUsage) {
    let labels = [("clusterCIDR", usage.range.as_str())];
    let help = "Maximum number of CIDRs that can be allocated.";
    metrics.set_gauge("node_ipam_controller_cirdset_max_cidrs", help, &labels, usage.parts as f64);
    let help = "Share of the cluster CIDR's node ranges that is allocated.";
    let used = usage.used as f64 / usage.parts as f64;
    metrics.set_gauge("node_ipam_controller_cidrset_usage_cidrs", help, &labels, used);
    let since = &usage.since;
    let help = "Counter measuring total number of CIDR allocations.";
    metrics.count("node_ipam_controller_cidrset_cidrs_allocations", help, &labels, since.allocated);
    let help = "Counter measuring total number of CIDR releases.";
    metrics.count("node_ipam_controller_cidrset_cidrs_releases", help, &labels, since.released);
    let name = "node_ipam_controller_cidrset_allocation_tries_per_request";
    for tries in &since.tries {
        metrics.observe(name, "Endpoints added by one reconcile of a Service", TRIES, &labels, *tries as f64);
    }
}

impl Allocator {
    async fn assign(&self, node: &Cached<Node>, ranges: &[String]) -> Result<(), ReconcileError> {
        let body = json!({
            "metadata": {"uid": node.meta().uid},
            "spec": {"podCIDR": ranges.first(), "podCIDRs": ranges},
        });
        let patched = self
            .client
            .patch(&Kind::of::<Node>(), node.key(), Subresource::None, Patch::strategic(&body))
            .await;
        let done = patched.optional().attempting(format!("allocate a pod CIDR to node {}", node.key()))?;
        if done.is_none() {
            self.allocations.lock().release(node.key().name(), &[]);
        }
        Ok(())
    }

    fn export_usage(&self) {
        let usage = self.allocations.lock().usage();
        usage.iter().for_each(|range| export(&self.metrics, range));
    }

    fn event(&self, node: &Cached<Node>, reason: &str) {
        let message = format!("Node {} status is now: {reason}", node.key().name());
        self.recorder.event(&Kind::of::<Node>(), node.object(), EventType::Normal, reason, &message);
    }
}
