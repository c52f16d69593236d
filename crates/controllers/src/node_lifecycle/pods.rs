//! Marks pods on unready nodes as not ready.

use std::sync::Arc;

use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Context, Event, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler,
    Recorder,
};

use super::known_nodes::KnownNodes;
use super::view::Node;
use crate::workload::condition::whole_seconds;
use crate::workload::on_node::node_of;
use crate::workload::pod::Pod;

/// Marks pods as not ready.
pub(super) struct PodReadiness {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    kind: Kind,
}

impl PodReadiness {
    pub(super) fn new(context: &Context, component: &'static str) -> Self {
        Self {
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            recorder: context.recorder(component),
            kind: Kind::of::<Pod>(),
        }
    }

    /// Marks a pod as not ready if it is ready.
    pub(super) async fn mark(&self, pod: &Cached<Pod>) -> Result<(), ReconcileError> {
        if !pod.is_ready() {
            return Ok(());
        }
        let meta = pod.meta();
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": whole_seconds(self.clock.now())});
        let patch = json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": [condition]},
        });
        let marked =
            self.client.patch(&self.kind, pod.key(), Subresource::Status, Patch::strategic(&patch)).await;
        if marked.optional().attempting(format!("mark pod {} as not ready", pod.key()))?.is_some() {
            let message = "Node is not ready";
            self.recorder.event(&self.kind, pod.object(), EventType::Warning, "NodeNotReady", message);
        }
        Ok(())
    }
}

/// Whether a pod was bound to a node.
pub(super) fn is_placed(event: &Event) -> bool {
    match event {
        Event::Added { object, .. } => node_of(object).is_some(),
        Event::Updated { old, new } => node_of(new).is_some() && node_of(old) != node_of(new),
        Event::Deleted { .. } => false,
    }
}

/// Marks pods that are bound to unready nodes.
pub(super) struct PodMarker {
    pub(super) pods: Lister<Pod>,
    pub(super) nodes: Lister<Node>,
    pub(super) known: Arc<KnownNodes>,
    pub(super) readiness: Arc<PodReadiness>,
}

impl Reconciler for PodMarker {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else { return Ok(Outcome::Settled) };
        let there = self.nodes.objects().contains(&Key::cluster(&*pod.node));
        if there && self.known.is_not_ready(&pod.node) {
            self.readiness.mark(&pod).await?;
        }
        Ok(Outcome::Settled)
    }
}
