//! Sets NoSchedule taints and labels of a node.

use setpoint::client::Subresource;
use setpoint::reconcile::ErrorContext;
use setpoint::{Key, Kind, Outcome, ReconcileError, Reconciler, UpdateBody};

use super::MonitorState;
use super::labels::missing;
use super::taints::by_conditions;
use super::view::Node;

pub(super) struct Tainter(pub(super) MonitorState);

impl Reconciler for Tainter {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.0.nodes.get(key)? else { return Ok(Outcome::Settled) };
        let taints = by_conditions(&node, self.0.clock.now());
        let labels = missing(&node.meta().labels);
        if taints.is_none() && labels.is_empty() {
            return Ok(Outcome::Settled);
        }
        let mut edited = UpdateBody::of(node.object());
        if let Some(taints) = taints {
            edited = edited.set(&["spec", "taints"], &taints);
        }
        for (name, value) in labels {
            edited = edited.set(&["metadata", "labels", name], &value);
        }
        let written = self.0.client.update(&Kind::of::<Node>(), key, Subresource::None, &edited).await;
        written.attempting(format!("taint or label node {key}")).map(|_| Outcome::Settled)
    }
}
