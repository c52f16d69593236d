//! Removes disruption conditions of pods that were not deleted.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Clock, Key, Kind, Lister, Outcome, ReconcileError, Reconciler};

use super::view::Target;
use crate::workload::condition::whole_seconds;
use crate::workload::disruption_target::DISRUPTION_TARGET;

/// How long a pod with a disruption condition may take to be deleted.
const PATIENCE: SignedDuration = SignedDuration::from_secs(120);

pub(super) struct Cleaner {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) pods: Lister<Target>,
}

impl Reconciler for Cleaner {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else { return Ok(Outcome::Settled) };
        let Some(since) = pod.disrupted.filter(|_| !pod.meta().is_being_deleted()) else {
            return Ok(Outcome::Settled);
        };
        let now = self.clock.now();
        let left = Duration::try_from(PATIENCE - now.duration_since(since)).unwrap_or_default();
        if !left.is_zero() {
            return Ok(Outcome::CheckAfter(left));
        }
        let condition = json!({
            "type": DISRUPTION_TARGET,
            "status": "False",
            "lastTransitionTime": whole_seconds(now),
            "observedGeneration": pod.meta().generation,
            "reason": null,
            "message": null,
        });
        let meta = pod.meta();
        let patch = json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": [condition]},
        });
        let patched = self
            .client
            .patch(&Kind::of::<Target>(), key, Subresource::Status, Patch::strategic(&patch))
            .await;
        patched.optional().attempting(format!("clear the DisruptionTarget condition of pod {key}"))?;
        Ok(Outcome::Settled)
    }
}
