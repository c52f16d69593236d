//! Evicts a pod: sets its DisruptionTarget condition, then deletes it.

use serde_json::json;
use setpoint::client::{DeleteOptions, Optional, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Clock, Key, Kind, ReconcileError};

use super::disruption_target::disruption_target;
use super::pod::Pod;

/// The condition's reason and message, by evicting controller.
pub(crate) struct Evicting {
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

impl Evicting {
    /// Evicts a pod if its uid still matches. Returns whether it did. The pod is read uncached, because its conditions
    /// are extended, not overwritten.
    pub(crate) async fn end(
        &self,
        client: &Client,
        clock: &Clock,
        key: &Key,
        uid: &str,
    ) -> Result<bool, ReconcileError> {
        let kind = Kind::of::<Pod>();
        let fresh = client.get(&kind, key).await.optional();
        let fresh = fresh.attempting(format!("get pod {key} before its eviction"))?;
        let Some(fresh) = fresh.filter(|fresh| *fresh.meta().uid == *uid) else { return Ok(false) };
        if let Some(condition) = disruption_target(&fresh, self.reason, self.message, clock.now()) {
            let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
            let patched = client.patch(&kind, key, Subresource::Status, Patch::strategic(&patch)).await;
            patched.optional().attempting(format!("set the DisruptionTarget condition of pod {key}"))?;
        }
        let deleted = client.delete(&kind, key, &DeleteOptions::of_uid(uid)).await.optional();
        deleted.attempting(format!("delete pod {key}"))?;
        Ok(true)
    }
}
