//! Checks all nodes every five seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use setpoint::client::Subresource;
use setpoint::object::DecodeError;
use setpoint::reconcile::ErrorContext;
use setpoint::recorder::Reference;
use setpoint::{
    Cached, EventType, Key, Kind, Lister, Outcome, Queue, ReconcileError, Reconciler, Recorder, UpdateBody,
};

use super::MonitorState;
use super::config::NodeLifecycle;
use super::evictor::taint;
use super::health::{HealthCheck, check_health};
use super::known_nodes::NodeChanges;
use super::pods::PodReadiness;
use super::taints::{EvictionReason, has_eviction_taint};
use super::view::{Lease, Node, counts_for_its_zone, zone_of};
use super::zones::{Census, OutageChange};
use crate::workload::on_node::OnNode;
use crate::workload::pod::Pod;

/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";
/// Nodes checked concurrently.
const CONCURRENCY: usize = 8;

pub(super) struct Monitor {
    pub(super) shared: MonitorState,
    pub(super) recorder: Recorder,
    pub(super) leases: Lister<Lease>,
    pub(super) pods: OnNode<Pod>,
    pub(super) readiness: Arc<PodReadiness>,
    pub(super) zones: Queue<Key>,
    pub(super) config: NodeLifecycle,
}

impl Reconciler for Monitor {
    type Key = Key;

    /// All nodes share one key, since the fate of one depends on the state of the others.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let began = self.shared.clock.instant();
        let nodes = self.shared.nodes.list(None)?;
        self.record_changes(&self.shared.known.update(&nodes));
        let checks: Vec<_> = nodes.iter().map(|node| self.check(node)).collect();
        let readiness: Vec<Option<bool>> = stream::iter(checks).buffered(CONCURRENCY).collect().await;
        let mut census: BTreeMap<String, Census> = BTreeMap::new();
        for (node, ready) in nodes.iter().zip(readiness) {
            if let Some(ready) = ready
                && counts_for_its_zone(node.meta())
            {
                census.entry(zone_of(node.meta())).or_default().count(ready);
            }
        }
        self.shared.metrics.zones(&census);
        self.assess(&nodes, &census).await;
        self.shared.metrics.observe_check(self.shared.clock.instant().saturating_duration_since(began));
        Ok(Outcome::CheckAfter(self.config.monitor_period))
    }
}

impl Monitor {
    /// Checks one node. Returns whether it is ready, or `None` on error.
    async fn check(&self, node: &Cached<Node>) -> Option<bool> {
        let began = self.shared.clock.instant();
        let checked = self.check_health(node).await;
        self.shared.metrics.observe_node_check(self.shared.clock.instant().saturating_duration_since(began));
        match checked {
            Ok(ready) => Some(ready),
            // The next round tries again.
            Err(error) => {
                tracing::warn!(
                    node = node.key().name(),
                    error = error.report(),
                    "cannot check the health of a node"
                );
                None
            }
        }
    }

    async fn check_health(&self, node: &Cached<Node>) -> Result<bool, ReconcileError> {
        let name = node.key().name();
        let (known, existed_at_startup) =
            (self.shared.known.health(name), self.shared.known.existed_at_startup(name));
        let checked =
            check_health(node, self.renewed(name)?, known.as_ref(), &self.config, self.shared.clock.now());
        if let Some(conditions) = &checked.conditions {
            let body = UpdateBody::of(node.object()).set(&["status", "conditions"], conditions);
            let written =
                self.shared.client.update(&Kind::of::<Node>(), node.key(), Subresource::Status, &body).await;
            written.attempting(format!("set the conditions of node {name} to Unknown"))?;
        }
        self.shared.known.record_check(name, &checked);
        let ready = checked.after.as_deref() == Some("True");
        if let Some(after) = &checked.after {
            self.taint_for_eviction(node, after).await?;
            self.mark_pods(node, &checked, existed_at_startup).await;
        }
        Ok(ready)
    }

    fn renewed(&self, node: &str) -> Result<Option<Timestamp>, DecodeError> {
        Ok(self.leases.get(&Key::namespaced(LEASES, node))?.and_then(|lease| lease.renewed()))
    }

    /// Taints an unready node for eviction. If it already has an eviction taint, the taint is corrected at once;
    /// otherwise the node waits for its zone's rate limit.
    async fn taint_for_eviction(&self, node: &Cached<Node>, status: &str) -> Result<(), ReconcileError> {
        let (zone, name) = (zone_of(node.meta()), node.key().name());
        let Some(why) = EvictionReason::for_status(status) else {
            self.shared.known.zones(|zones| zones.dequeue(&zone, name));
            return taint(&self.shared.client, &self.shared.clock, node, None).await;
        };
        if why.is_on(node) {
            return Ok(());
        }
        if has_eviction_taint(node) {
            return taint(&self.shared.client, &self.shared.clock, node, Some(why)).await;
        }
        // The zone's rate is only known after all nodes have been checked.
        self.shared.known.zones(|zones| zones.enqueue(&zone, name));
        Ok(())
    }

    /// Marks the pods of a node that has just become unready as not ready. Also for a node that was unready at startup,
    /// since its pods may not all have been marked.
    async fn mark_pods(&self, node: &Cached<Node>, checked: &HealthCheck, existed_at_startup: bool) {
        let name = node.key().name();
        let ready = |status: &Option<String>| status.as_deref() == Some("True");
        if ready(&checked.after) {
            return self.shared.known.set_unmarked(name, false);
        }
        let ceased = ready(&checked.before);
        if ceased {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.node_event(name, &node.meta().uid, "NodeNotReady", message);
        }
        if ceased || existed_at_startup || self.shared.known.is_unmarked(name) {
            let marked = self.mark_all(name).await;
            if let Err(error) = &marked {
                tracing::warn!(node = name, error = error.report(), "cannot mark all pods of a node");
            }
            self.shared.known.set_unmarked(name, marked.is_err());
        }
    }

    async fn mark_all(&self, node: &str) -> Result<(), ReconcileError> {
        let mut result = Ok(());
        for pod in self.pods.pods(node)? {
            result = result.and(self.readiness.mark(&pod).await);
        }
        result
    }

    async fn assess(&self, nodes: &[Cached<Node>], census: &BTreeMap<String, Census>) {
        let change = self.shared.known.assess(census, self.shared.clock.now(), self.shared.clock.instant());
        if change == OutageChange::Started {
            tracing::warn!("no node is ready: eviction is suspended");
            for node in nodes {
                if let Err(error) = taint(&self.shared.client, &self.shared.clock, node, None).await {
                    tracing::warn!(
                        node = node.key().name(),
                        error = error.report(),
                        "cannot remove an eviction taint"
                    );
                }
            }
        }
        let zones: BTreeSet<String> = nodes.iter().map(|node| zone_of(node.meta())).collect();
        zones.into_iter().for_each(|zone| self.zones.add(Key::cluster(zone)));
    }

    fn record_changes(&self, changes: &NodeChanges) {
        for (name, uid) in &changes.added {
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            self.node_event(name, uid, "RegisteredNode", message);
        }
        for (name, uid) in &changes.removed {
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.node_event(name, uid, "RemovingNode", message);
        }
    }

    fn node_event(&self, name: &str, uid: &str, reason: &str, message: String) {
        let about = Reference {
            kind: "Node".to_owned(),
            api_version: "v1".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..Reference::default()
        };
        self.recorder.event_about(about, EventType::Normal, reason, message, BTreeMap::new());
    }
}
