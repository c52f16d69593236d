//! Checks all nodes every five seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use setpoint::client::Part;
use setpoint::object::DecodeError;
use setpoint::reconcile::Attempting;
use setpoint::recorder::Reference;
use setpoint::{
    Cached, Edit, EventType, Key, Kind, Lister, Outcome, Queue, ReconcileError, Reconciler, Recorder,
};

use super::Shared;
use super::config::NodeLifecycle;
use super::evictor::taint;
use super::health::{Finding, look};
use super::known_nodes::Movement;
use super::pods::PodReadiness;
use super::taints::{Expulsion, expels};
use super::view::{Lease, Node, counts_for_its_zone, zone_of};
use super::zones::{Census, Turn};
use crate::workload::on_node::OnNode;
use crate::workload::pod::Pod;

/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";
/// Nodes checked concurrently.
const CONCURRENCY: usize = 8;

pub(super) struct Monitor {
    pub(super) shared: Shared,
    pub(super) recorder: Recorder,
    pub(super) leases: Lister<Lease>,
    pub(super) pods: OnNode<Pod>,
    pub(super) readiness: Arc<PodReadiness>,
    pub(super) zones: Queue<Key>,
    pub(super) patience: NodeLifecycle,
}

impl Reconciler for Monitor {
    type Key = Key;

    /// All nodes share one key, since the fate of one depends on the state of the others.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let began = self.shared.clock.instant();
        let nodes = self.shared.nodes.list(None)?;
        self.record_movement(&self.shared.known.update(&nodes));
        let looks: Vec<_> = nodes.iter().map(|node| self.check(node)).collect();
        let readiness: Vec<Option<bool>> = stream::iter(looks).buffered(CONCURRENCY).collect().await;
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
        self.shared.metrics.looked_at_nodes(self.shared.clock.instant().saturating_duration_since(began));
        Ok(Outcome::CheckAfter(self.patience.monitor_period))
    }
}

impl Monitor {
    /// Checks one node. Returns whether it is ready, or `None` on error.
    async fn check(&self, node: &Cached<Node>) -> Option<bool> {
        let began = self.shared.clock.instant();
        let looked = self.look(node).await;
        self.shared.metrics.looked_at_node(self.shared.clock.instant().saturating_duration_since(began));
        match looked {
            Ok(ready) => Some(ready),
            // The next round tries again.
            Err(error) => {
                tracing::warn!(
                    node = node.key().name(),
                    error = error.report(),
                    "cannot follow a node's health"
                );
                None
            }
        }
    }

    async fn look(&self, node: &Cached<Node>) -> Result<bool, ReconcileError> {
        let name = node.key().name();
        let (known, from_before) = (self.shared.known.health(name), self.shared.known.is_from_before(name));
        let finding =
            look(node, self.renewed(name)?, known.as_ref(), &self.patience, self.shared.clock.now());
        if let Some(conditions) = &finding.conditions {
            let body = Edit::of(node.object()).set(&["status", "conditions"], conditions);
            let written =
                self.shared.client.update(&Kind::of::<Node>(), node.key(), Part::Status, &body).await;
            written.attempting(format!("say that node {name} is silent"))?;
        }
        self.shared.known.found(name, &finding);
        let ready = finding.after.as_deref() == Some("True");
        if let Some(after) = &finding.after {
            self.expel(node, after).await?;
            self.mark_pods(node, &finding, from_before).await;
        }
        Ok(ready)
    }

    fn renewed(&self, node: &str) -> Result<Option<Timestamp>, DecodeError> {
        Ok(self.leases.get(&Key::namespaced(LEASES, node))?.and_then(|lease| lease.renewed()))
    }

    /// Taints an unready node for eviction. If it already has an eviction taint, the taint is corrected at once;
    /// otherwise the node waits for its zone's rate limit.
    async fn expel(&self, node: &Cached<Node>, status: &str) -> Result<(), ReconcileError> {
        let (zone, name) = (zone_of(node.meta()), node.key().name());
        let Some(why) = Expulsion::for_status(status) else {
            self.shared.known.zones(|zones| zones.stop_waiting(&zone, name));
            return taint(&self.shared.client, &self.shared.clock, node, None).await;
        };
        if why.is_on(node) {
            return Ok(());
        }
        if expels(node) {
            return taint(&self.shared.client, &self.shared.clock, node, Some(why)).await;
        }
        // The zone's rate is only known after all nodes have been checked.
        self.shared.known.zones(|zones| zones.wait(&zone, name));
        Ok(())
    }

    /// Marks the pods of a node that has just become unready as not ready. Also for a node that was unready at startup,
    /// since its pods may not all have been marked.
    async fn mark_pods(&self, node: &Cached<Node>, finding: &Finding, from_before: bool) {
        let name = node.key().name();
        let ready = |status: &Option<String>| status.as_deref() == Some("True");
        if ready(&finding.after) {
            return self.shared.known.set_unmarked(name, false);
        }
        let ceased = ready(&finding.before);
        if ceased {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.node_event(name, &node.meta().uid, "NodeNotReady", message);
        }
        if ceased || from_before || self.shared.known.is_unmarked(name) {
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
        let turn = self.shared.known.assess(census, self.shared.clock.now(), self.shared.clock.instant());
        if turn == Turn::Blind {
            tracing::warn!("no node is ready: nobody is made to leave");
            for node in nodes {
                if let Err(error) = taint(&self.shared.client, &self.shared.clock, node, None).await {
                    tracing::warn!(
                        node = node.key().name(),
                        error = error.report(),
                        "cannot take a taint back"
                    );
                }
            }
        }
        let zones: BTreeSet<String> = nodes.iter().map(|node| zone_of(node.meta())).collect();
        zones.into_iter().for_each(|zone| self.zones.add(Key::cluster(zone)));
    }

    fn record_movement(&self, movement: &Movement) {
        for (name, uid) in &movement.come {
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            self.node_event(name, uid, "RegisteredNode", message);
        }
        for (name, uid) in &movement.gone {
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
