//! Writes needed before a pod can be bound, and their progress. Pure.

use std::time::Duration;

use setpoint::{Cached, Instant, Key, Object, UpdateBody};
use setpoint_volume::{Claim, SELECTED_NODE, Volume, binding};

use super::caches::VolumeCaches;
use super::needs::VolumeNeeds;
use crate::ledger::NodeInfo;

/// Timeout for binding a pod's claims.
const BIND_WITHIN: Duration = Duration::from_secs(600);

/// The objects to write, in their new state.
#[derive(Clone, Default)]
pub(crate) struct Preparation {
    /// Volumes that are bound to claims.
    pub(crate) volumes: Vec<Object>,
    /// Claims whose volumes are to be provisioned on the node.
    pub(crate) claims: Vec<Object>,
    /// All claims that must be bound before the pod.
    waits_for: Vec<Key>,
}

/// A pod whose claims are being bound.
#[derive(Clone)]
pub(crate) struct Preparing {
    pub(crate) node: String,
    pub(crate) preparation: Preparation,
    pub(crate) since: Instant,
}

/// The progress of binding a pod's claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Bound,
    Wait,
    /// Failed: the pod has to be scheduled again.
    Failed(String),
}

impl Preparation {
    /// Computes a pod's writes on a node that can satisfy its volumes.
    pub(crate) fn of(needs: &VolumeNeeds<'_>, node: &NodeInfo) -> Self {
        let served = needs.served_on(node).unwrap_or_default();
        let mut preparation = Self::default();
        for (claim, volume) in &served.bindings {
            preparation.waits_for.push(claim.key().clone());
            preparation
                .volumes
                .extend(binding::volume_bound_to(volume, claim).and_then(|edit| edited(&edit)));
        }
        for claim in &served.provisions {
            preparation.waits_for.push(claim.key().clone());
            if !claim.has_selected_node() {
                let edit = UpdateBody::of(claim.object())
                    .set(&["metadata", "annotations", SELECTED_NODE], &node.name);
                preparation.claims.extend(edited(&edit));
            }
        }
        preparation
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waits_for.is_empty()
    }

    /// Assumes all writes.
    pub(crate) fn assume(&self, caches: &VolumeCaches) {
        self.volumes.iter().for_each(|volume| caches.volumes.assume(volume.clone()));
        self.claims.iter().for_each(|claim| caches.claims.assume(claim.clone()));
    }

    /// Drops the assumptions that were not written.
    pub(crate) fn forget(&self, caches: &VolumeCaches) {
        self.volumes.iter().for_each(|volume| caches.volumes.forget(volume.key()));
        self.claims.iter().for_each(|claim| caches.claims.forget(claim.key()));
    }
}

fn edited(edit: &UpdateBody<'_>) -> Option<Object> {
    let encoded = serde_json::to_vec(edit).ok()?;
    Object::from_json(encoded.into()).ok()
}

impl Preparing {
    /// Returns the progress of the claims. `node` is the node's current state.
    pub(crate) fn progress(&self, node: Option<&NodeInfo>, caches: &VolumeCaches, now: Instant) -> Progress {
        let Some(node) = node else {
            return Progress::Failed(format!("failed to get node {:?}: not found", self.node));
        };
        let progress = self.preparation.waits_for.iter().map(|claim| self.of_claim(claim, node, caches));
        let mut all = Progress::Bound;
        for one in progress {
            match one {
                Progress::Bound => {}
                Progress::Wait => all = Progress::Wait,
                failed => return failed,
            }
        }
        if all == Progress::Wait && now.saturating_duration_since(self.since) >= BIND_WITHIN {
            return Progress::Failed("context deadline exceeded".into());
        }
        all
    }

    fn of_claim(&self, key: &Key, node: &NodeInfo, caches: &VolumeCaches) -> Progress {
        let Ok(Some(claim)) = caches.claims.get_real(key) else {
            return Progress::Failed(format!("failed to check provisioning pvc: could not find pvc {key:?}"));
        };
        let provisioned = self.preparation.claims.iter().any(|one| one.key() == key);
        if provisioned && claim.metadata.get(SELECTED_NODE) != Some(&*self.node) {
            return Progress::Failed(format!("provisioning failed for PVC {:?}", key.name()));
        }
        if let Some(reset) = self.lost_volume(&claim, caches) {
            return Progress::Failed(format!("ClaimRef got reset for pv {reset:?}"));
        }
        let volume = match &*claim.spec.volume_name {
            "" => return Progress::Wait,
            name => caches.volumes.get_real(&Key::cluster(name)).ok().flatten(),
        };
        match volume {
            Some(volume) if !volume.is_reached_by(&node.labels) => {
                let (volume, node) = (volume.key().name(), &node.name);
                let why = "no matching NodeSelectorTerms";
                Progress::Failed(format!("pv {volume:?} node affinity doesn't match node {node:?}: {why}"))
            }
            Some(_) if claim.is_bound() => Progress::Bound,
            _ => Progress::Wait,
        }
    }

    /// Returns the volume that was bound to a claim and no longer is.
    fn lost_volume(&self, claim: &Cached<Claim>, caches: &VolumeCaches) -> Option<String> {
        let meant = |volume: &&Object| {
            let reference = volume.view::<Volume>().ok().and_then(|view| view.spec.claim_ref.clone());
            reference.is_some_and(|reference| reference.names(claim.key()))
        };
        let volume = self.preparation.volumes.iter().find(meant)?;
        let real = caches.volumes.get_real(volume.key()).ok()??;
        let bound = real.spec.claim_ref.as_ref().is_some_and(|reference| !reference.uid.is_empty());
        (!bound).then(|| volume.key().name().to_owned())
    }
}
