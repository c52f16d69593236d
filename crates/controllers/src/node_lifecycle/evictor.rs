//! Taints nodes of a zone for eviction, rate-limited.

use setpoint::client::Subresource;
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, Clock, Key, Kind, Outcome, ReconcileError, Reconciler, UpdateBody};

use super::MonitorState;
use super::taints::{EvictionReason, with_eviction_taint};
use super::view::Node;

pub(super) struct Evictor(pub(super) MonitorState);

impl Reconciler for Evictor {
    type Key = Key;

    /// The key is the name of a zone.
    async fn reconcile(&self, zone: &Key) -> Result<Outcome, ReconcileError> {
        let zone = zone.name();
        while let Some(name) = self.0.known.zones(|zones| zones.due(zone, self.0.clock.instant())) {
            let node = self.0.nodes.get(&Key::cluster(&*name))?;
            let status = node.as_ref().and_then(|node| Some(node.condition("Ready")?.status.as_str()));
            match (&node, status.and_then(EvictionReason::for_status)) {
                (Some(node), Some(why)) => {
                    taint(&self.0.client, &self.0.clock, node, Some(why)).await?;
                    self.0.known.zones(|zones| zones.mark_tainted(zone, &name, self.0.clock.instant()));
                    self.0.metrics.node_evicted(zone);
                }
                // It is gone or ready again.
                _ => self.0.known.zones(|zones| zones.dequeue(zone, &name)),
            }
        }
        let next = self.0.known.zones(|zones| zones.next(zone, self.0.clock.instant()));
        Ok(next.map_or(Outcome::Settled, Outcome::CheckAfter))
    }
}

/// Sets the node's NoExecute taint for this reason, or removes it.
pub(super) async fn taint(
    client: &Client,
    clock: &Clock,
    node: &Cached<Node>,
    why: Option<EvictionReason>,
) -> Result<(), ReconcileError> {
    let Some(taints) = with_eviction_taint(node, why, clock.now()) else { return Ok(()) };
    let edited = UpdateBody::of(node.object()).set(&["spec", "taints"], &taints);
    let written = client.update(&Kind::of::<Node>(), node.key(), Subresource::None, &edited).await;
    written.map(drop).attempting(format!("taint node {}", node.key()))
}
