//! Adoption and release of dependents, with an uncached check of the owner before any adoption.

use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::owner::{Claim, adoption, claim, controller_ref, release};
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, ClientError, Kind, LabelSelector, Metadata, Object, ReconcileError, View};

/// The dependents of an owner, by what to do about them.
pub(crate) struct Claims<V> {
    /// Controlled and selected.
    pub(crate) owned: Vec<Cached<V>>,
    /// Orphans that are selected.
    pub(crate) adopt: Vec<Cached<V>>,
    /// Controlled, but no longer selected.
    pub(crate) release: Vec<Cached<V>>,
}

impl<V: View> Claims<V> {
    /// Sorts the dependents an owner could claim. Pure. Selected ones that do not `fit` are released.
    pub(crate) fn of(
        owner: &Metadata,
        selector: &LabelSelector,
        candidates: Vec<Cached<V>>,
        fits: impl Fn(&Cached<V>) -> bool,
    ) -> Self {
        let mut claims = Self { owned: Vec::new(), adopt: Vec::new(), release: Vec::new() };
        for candidate in candidates {
            match claim(owner, selector, candidate.meta()) {
                Claim::Owned if fits(&candidate) => claims.owned.push(candidate),
                Claim::Adopt if fits(&candidate) => claims.adopt.push(candidate),
                Claim::Owned if !owner.is_being_deleted() => claims.release.push(candidate),
                Claim::Release => claims.release.push(candidate),
                Claim::Owned | Claim::Adopt | Claim::Foreign => {}
            }
        }
        claims
    }

    /// Adopts and releases. Adopted dependents are added to `owned`, unless they are gone.
    pub(crate) async fn carry_out(
        mut self,
        client: &Client,
        claimant: &Claimant<'_>,
    ) -> Result<Vec<Cached<V>>, ReconcileError> {
        let kind = Kind::of::<V>();
        if !self.adopt.is_empty() {
            recheck(client, claimant.kind, claimant.owner).await?;
        }
        for dependent in self.adopt {
            match patch(client, &kind, dependent.object(), claimant.adoption(dependent.meta())).await {
                Err(error) if error.is_not_found() => {}
                adopted => {
                    adopted.attempting(format!("adopt {} {}", kind.kind(), dependent.key()))?;
                    self.owned.push(dependent);
                }
            }
        }
        for dependent in self.release {
            match patch(client, &kind, dependent.object(), claimant.release(dependent.meta())).await {
                Err(error) if error.is_not_found() || error.is_invalid() => {}
                released => released.attempting(format!("release {} {}", kind.kind(), dependent.key()))?,
            }
        }
        Ok(self.owned)
    }
}

/// The owner that claims.
pub(crate) struct Claimant<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) owner: &'a Object,
    /// A finalizer to set on claimed dependents and remove from released ones.
    pub(crate) finalizer: Option<&'a str>,
}

impl Claimant<'_> {
    fn adoption(&self, dependent: &Metadata) -> Patch {
        let owner = controller_ref(self.kind, self.owner.meta());
        match self.finalizer {
            None => adoption(&owner, dependent),
            Some(finalizer) => Patch::strategic(&json!({"metadata": {
                "uid": dependent.uid, "ownerReferences": [owner], "finalizers": [finalizer],
            }})),
        }
    }

    fn release(&self, dependent: &Metadata) -> Patch {
        let uid = &self.owner.meta().uid;
        match self.finalizer {
            None => release(uid, dependent),
            Some(finalizer) => Patch::strategic(&json!({"metadata": {
                "uid": dependent.uid,
                "ownerReferences": [{"$patch": "delete", "uid": uid}],
                "$deleteFromPrimitiveList/finalizers": [finalizer],
            }})),
        }
    }
}

async fn patch(client: &Client, kind: &Kind, object: &Object, patch: Patch) -> Result<(), ClientError> {
    client.patch_ignoring_response(kind, object.key(), Subresource::None, patch).await
}

/// Checks uncached that an owner still exists and is not being deleted.
pub(crate) async fn recheck(client: &Client, kind: &Kind, owner: &Object) -> Result<(), ReconcileError> {
    let key = owner.key();
    let fresh = client
        .get(kind, key)
        .await
        .attempting(format!("recheck {} {key} before an adoption", kind.kind()))?;
    if fresh.meta().uid != owner.meta().uid {
        return Err(ReconcileError::retry(format!("adopt for {key}: another {} has its name", kind.kind())));
    }
    if fresh.meta().is_being_deleted() {
        return Err(ReconcileError::retry(format!("adopt for {key}: it has just been deleted")));
    }
    Ok(())
}
