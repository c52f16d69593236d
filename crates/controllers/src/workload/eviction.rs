//! How a pod is made to go: it says so itself, and is deleted then.

use serde_json::json;
use setpoint::client::{Delete, Optional, Part, Patch};
use setpoint::reconcile::Attempting;
use setpoint::{Client, Clock, Key, Kind, ReconcileError};

use super::disruption_target::disruption_target;
use super::pod::Pod;

/// Who makes pods go, in the words of the pods' condition.
pub(crate) struct Evicting {
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

impl Evicting {
    /// Ends a pod, if it is still the one that was looked at; says whether it was. What the pod says of itself is
    /// completed, not overwritten, so it is read past the cache.
    pub(crate) async fn end(
        &self,
        client: &Client,
        clock: &Clock,
        key: &Key,
        uid: &str,
    ) -> Result<bool, ReconcileError> {
        let kind = Kind::of::<Pod>();
        let fresh = client.get(&kind, key).await.optional();
        let fresh = fresh.attempting(format!("look at pod {key} before it goes"))?;
        let Some(fresh) = fresh.filter(|fresh| *fresh.meta().uid == *uid) else { return Ok(false) };
        if let Some(condition) = disruption_target(&fresh, self.reason, self.message, clock.now()) {
            let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
            let told = client.patch(&kind, key, Part::Status, Patch::strategic(&patch)).await;
            told.optional().attempting(format!("say of pod {key} that it is made to go"))?;
        }
        let deleted = client.delete(&kind, key, &Delete::of_uid(uid)).await.optional();
        deleted.attempting(format!("delete pod {key}"))?;
        Ok(true)
    }
}
