//! One zone: taints that make pods go, no faster than the zone allows.

use setpoint::client::Part;
use setpoint::reconcile::Attempting;
use setpoint::{Cached, Client, Clock, Edit, Key, Kind, Lister, Outcome, ReconcileError, Reconciler};
use std::sync::Arc;

use super::figures::Figures;
use super::roll::Roll;
use super::taints::{Expulsion, expelling};
use super::view::Node;

pub(super) struct Evictor {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) nodes: Lister<Node>,
    pub(super) roll: Arc<Roll>,
    pub(super) figures: Arc<Figures>,
}

impl Reconciler for Evictor {
    type Key = Key;

    /// The key is the name of a zone.
    async fn reconcile(&self, zone: &Key) -> Result<Outcome, ReconcileError> {
        let zone = zone.name();
        while let Some(name) = self.roll.zones(|zones| zones.due(zone, self.clock.instant())) {
            let node = self.nodes.get(&Key::cluster(&*name))?;
            let status = node.as_ref().and_then(|node| Some(node.condition("Ready")?.status.as_str()));
            match (&node, status.and_then(Expulsion::for_status)) {
                (Some(node), Some(why)) => {
                    taint(&self.client, &self.clock, node, Some(why)).await?;
                    self.roll.zones(|zones| zones.tainted(zone, &name, self.clock.instant()));
                    self.figures.node_evicted(zone);
                }
                // It is gone, or ready again.
                _ => self.roll.zones(|zones| zones.stop_waiting(zone, &name)),
            }
        }
        let next = self.roll.zones(|zones| zones.next(zone, self.clock.instant()));
        Ok(next.map_or(Outcome::Settled, Outcome::CheckAfter))
    }
}

/// Makes pods leave a node for this reason, or for none.
pub(super) async fn taint(
    client: &Client,
    clock: &Clock,
    node: &Cached<Node>,
    why: Option<Expulsion>,
) -> Result<(), ReconcileError> {
    let Some(taints) = expelling(node, why, clock.now()) else { return Ok(()) };
    let edited = Edit::of(node.object()).set(&["spec", "taints"], &taints);
    let written = client.update(&Kind::of::<Node>(), node.key(), Part::Main, &edited).await;
    written.map(drop).attempting(format!("taint node {}", node.key()))
}
