//! The claims of a set's pods, and their owner references. Pure.

use serde_json::{Map, Value, json};
use setpoint::owner::controller_ref;
use setpoint::{Cached, Kind, Metadata, OwnerRef};

use super::view::{Claim, ClaimTemplate, Retention, RetentionPolicyType, StatefulSet, claim_name};
use crate::workload::pod::Pod;

/// Builds a pod's claim: the template with the set's labels and its own name.
pub(super) fn claim_body(
    set: &Cached<StatefulSet>,
    template: &ClaimTemplate,
    ordinal: usize,
) -> Map<String, Value> {
    let mut body = template.body.clone();
    let metadata = body.entry("metadata").or_insert_with(|| json!({}));
    metadata["name"] = claim_name(set, template, ordinal).into();
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    for (key, value) in set.spec.selector.match_labels.iter() {
        metadata["labels"][key] = value.into();
    }
    body.insert("apiVersion".into(), "v1".into());
    body.insert("kind".into(), "PersistentVolumeClaim".into());
    body.remove("status");
    body
}

/// The possible owners of a claim: the set, and the pod that uses it.
pub(super) struct Owners<'a> {
    pub(super) set: &'a Cached<StatefulSet>,
    pub(super) pod: &'a Cached<Pod>,
    /// Whether the set still wants the pod.
    pub(super) wanted: bool,
}

/// The owner that a claim is deleted with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeletedWith {
    Set,
    Pod,
    None,
}

impl Owners<'_> {
    /// Returns the corrected owner references of a claim, or `None` if they are correct.
    pub(super) fn corrected(&self, claim: &Cached<Claim>) -> Option<Vec<OwnerRef>> {
        if self.is_up_to_date(claim.meta()) {
            return None;
        }
        let kept = claim.meta().owner_references.iter().filter(|owner| !self.is_own_reference(owner));
        let mut owners: Vec<_> = kept.cloned().collect();
        if !self.has_other_controller(claim.meta()) {
            owners.extend(self.owner(self.deleted_with()));
        }
        Some(owners)
    }

    /// Whether a claim under a retention policy has another controller.
    pub(super) fn has_other_controller(&self, claim: &Metadata) -> bool {
        if self.policy() == Retention::default() {
            return false;
        }
        let other = |owner: &OwnerRef| match self.uid_of_namesake(owner) {
            // Same kind and name, but another uid: left over from a deleted owner.
            Some(uid) => *uid != *owner.uid,
            None => owner.controller == Some(true),
        };
        claim.owner_references.iter().any(other)
    }

    fn is_up_to_date(&self, claim: &Metadata) -> bool {
        let (set, pod) = (self.set.meta(), self.pod.meta());
        let stale = |owner: &OwnerRef| self.uid_of_namesake(owner).is_some_and(|uid| *uid != *owner.uid);
        if claim.owner_references.iter().any(stale) {
            return true;
        }
        let owned_by = |meta: &Metadata| claim.owner_references.iter().any(|owner| owner.uid == meta.uid);
        if self.has_other_controller(claim) {
            return !owned_by(set) && !owned_by(pod);
        }
        let ours = |owner: &OwnerRef| owner.uid == set.uid || owner.uid == pod.uid;
        let idle = |owner: &OwnerRef| ours(owner) && owner.controller != Some(true);
        if claim.owner_references.iter().any(idle) {
            return false;
        }
        let deleted_with = self.deleted_with();
        owned_by(set) == (deleted_with == DeletedWith::Set)
            && owned_by(pod) == (deleted_with == DeletedWith::Pod)
    }

    fn deleted_with(&self) -> DeletedWith {
        match (self.policy(), self.wanted) {
            (Retention { when_scaled: RetentionPolicyType::Delete, .. }, false) => DeletedWith::Pod,
            (Retention { when_deleted: RetentionPolicyType::Delete, .. }, _) => DeletedWith::Set,
            _ => DeletedWith::None,
        }
    }

    fn policy(&self) -> Retention {
        self.set.spec.persistent_volume_claim_retention_policy
    }

    fn owner(&self, deleted_with: DeletedWith) -> Option<OwnerRef> {
        match deleted_with {
            DeletedWith::Set => Some(controller_ref(&Kind::of::<StatefulSet>(), self.set.meta())),
            DeletedWith::Pod => Some(controller_ref(&Kind::of::<Pod>(), self.pod.meta())),
            DeletedWith::None => None,
        }
    }

    fn is_own_reference(&self, owner: &OwnerRef) -> bool {
        self.uid_of_namesake(owner).is_some()
    }

    /// Returns the uid of the set or pod if the reference has its kind and name.
    fn uid_of_namesake(&self, owner: &OwnerRef) -> Option<&str> {
        let (set, pod) = (self.set.meta(), self.pod.meta());
        let is = |api_version: &str, kind: &str, meta: &Metadata| {
            (&*owner.api_version, &*owner.kind, &*owner.name) == (api_version, kind, &*meta.name)
        };
        if is("apps/v1", "StatefulSet", set) {
            return Some(&set.uid);
        }
        is("v1", "Pod", pod).then_some(&*pod.uid)
    }
}

/// Whether a claim still belongs to an earlier pod of this name, and is about to be deleted with it.
pub(super) fn is_stale_claim(claim: &Metadata, pod_name: &str) -> bool {
    let of_pod = |owner: &OwnerRef| (&*owner.kind, &*owner.name) == ("Pod", pod_name);
    claim.owner_references.iter().any(of_pod)
}
