//! Reconciles a claim: removes consumers that are gone, deallocates a claim without consumers, and deletes it if it was
//! generated for a pod that is done.

use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, Key, Kind, Lister, Object, ReconcileError, UpdateBody};

use super::view::{Claim, Consumer, FINALIZER, Pod, is_done, owning_pod};

pub(super) struct Claims {
    pub(super) client: Client,
    pub(super) pods: Lister<Pod>,
    pub(super) claims: Lister<Claim>,
}

impl Claims {
    pub(super) async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = self.claims.get(key)? else { return Ok(()) };
        let mut left = Vec::new();
        for consumer in &claim.status.reserved_for {
            if self.is_in_use(&claim, consumer).await? {
                left.push(consumer.clone());
            }
        }
        let protected = claim.meta().has_finalizer(FINALIZER);
        if left.len() < claim.status.reserved_for.len() {
            let free = left.is_empty() && protected;
            let updated = self.set_consumers(&claim, &left, free).await?;
            if free {
                self.unprotect(&updated).await?;
            }
        } else if protected && claim.meta().is_being_deleted() && left.is_empty() {
            let object = match claim.status.allocation {
                true => self.set_consumers(&claim, &left, true).await?,
                false => claim.object().clone(),
            };
            self.unprotect(&object).await?;
        }
        if left.is_empty() {
            self.remove_if_unused(&claim).await?;
        }
        Ok(())
    }

    /// Whether a consumer may still use the claim.
    async fn is_in_use(&self, claim: &Cached<Claim>, consumer: &Consumer) -> Result<bool, ReconcileError> {
        if !consumer.api_group.is_empty() || consumer.resource != "pods" {
            return Err(ReconcileError::retry(format!("unsupported ReservedFor entry: {consumer:?}")));
        }
        let key = claim.key().sibling(consumer.name.as_str());
        if let Some(pod) = self.pods.get(&key)? {
            return Ok(*pod.meta().uid == *consumer.uid && !is_done(&pod));
        }
        // The cache may be stale.
        let asked = self.client.get(&Kind::of::<Pod>(), &key).await.optional();
        let pod = asked.attempting(format!("check whether pod {key} still uses a claim"))?;
        Ok(pod.is_some_and(|pod| *pod.meta().uid == *consumer.uid))
    }

    async fn set_consumers(
        &self,
        claim: &Cached<Claim>,
        consumers: &[Consumer],
        free: bool,
    ) -> Result<Object, ReconcileError> {
        let mut edit = UpdateBody::of(claim.object()).set(&["status", "reservedFor"], &consumers);
        if free {
            edit = edit.remove(&["status", "allocation"]);
        }
        let updated = self.client.update(&Kind::of::<Claim>(), claim.key(), Subresource::Status, &edit).await;
        updated.attempting(format!("remove consumers from claim {}", claim.key()))
    }

    async fn unprotect(&self, claim: &Object) -> Result<(), ReconcileError> {
        let left: Vec<_> = claim.meta().finalizers.iter().filter(|name| &***name != FINALIZER).collect();
        let edit = UpdateBody::of(claim).set(&["metadata", "finalizers"], &left);
        let updated = self.client.update(&Kind::of::<Claim>(), claim.key(), Subresource::None, &edit).await;
        updated.optional().map(drop).attempting(format!("remove the finalizer from claim {}", claim.key()))
    }

    /// Deletes a claim generated for a pod that no longer needs it. If the pod is gone, the garbage collector does
    /// that.
    async fn remove_if_unused(&self, claim: &Cached<Claim>) -> Result<(), ReconcileError> {
        let Some(owner) = owning_pod(claim.meta()) else { return Ok(()) };
        let Some(pod) = self.pods.get(&claim.key().sibling(&*owner.name))? else { return Ok(()) };
        if pod.meta().uid == owner.uid && !is_done(&pod) {
            return Ok(());
        }
        let delete = DeleteOptions::of_uid(claim.meta().uid.to_string());
        let deleted = self.client.delete(&Kind::of::<Claim>(), claim.key(), &delete).await.optional();
        deleted.map(drop).attempting(format!("delete claim {}", claim.key()))
    }
}
