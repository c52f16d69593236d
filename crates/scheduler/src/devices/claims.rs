//! Finds the resource claims of a pod. Pure.

use setpoint::{Cached, Event, Key, Lister};

use super::view::{Claim, PodClaim};
use crate::view::{Pod, PodView};

/// The claim behind one of a pod's `resourceClaims`.
enum Named<'a> {
    /// The claim with this name. A generated claim must be owned by the pod.
    Claim {
        name: &'a str,
        of_pod: bool,
    },
    NotNeeded,
    NotMadeYet,
}

/// Returns the claims of a pod in spec order, or an error if one is missing or unusable. As in v1.34, such a pod is not
/// tried and nothing is reported.
pub(crate) fn claims_of(pod: &Pod, claims: &Lister<Claim>) -> Result<Vec<Cached<Claim>>, String> {
    let mut found = Vec::new();
    for request in &pod.spec.resource_claims {
        let (name, of_pod) = match named(pod, request) {
            Named::Claim { name, of_pod } => (name, of_pod),
            Named::NotNeeded => continue,
            Named::NotMadeYet => {
                return Err(format!("pod {:?}: ResourceClaim not created yet", pod.key().to_string()));
            }
        };
        let claim = claims.get(&pod.key().sibling(name)).map_err(|error| error.to_string())?;
        let claim = claim.ok_or_else(|| format!("resourceclaim.resource.k8s.io {name:?} not found"))?;
        if claim.meta().is_being_deleted() {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if of_pod && !claim.meta().is_controlled_by(&pod.meta().uid) {
            let (claim, pod) = (claim.key(), pod.key());
            return Err(format!("ResourceClaim {claim} was not created for pod {pod} (pod is not owner)"));
        }
        found.push(claim);
    }
    Ok(found)
}

/// Whether a pod uses a claim.
pub(crate) fn uses(pod: &Pod, claim: &Key) -> bool {
    let same = |name: &str| claim.namespace() == pod.key().namespace() && claim.name() == name;
    pod.spec.resource_claims.iter().any(|request| match named(pod, request) {
        Named::Claim { name, .. } => same(name),
        _ => false,
    })
}

fn named<'a>(pod: &'a PodView, request: &'a PodClaim) -> Named<'a> {
    if let Some(name) = &request.resource_claim_name {
        return Named::Claim { name, of_pod: false };
    }
    match pod.status.resource_claim_statuses.iter().find(|status| status.name == request.name) {
        None => Named::NotMadeYet,
        Some(status) => match &status.resource_claim_name {
            Some(name) => Named::Claim { name, of_pod: true },
            None => Named::NotNeeded,
        },
    }
}

/// Whether a claim is new or its state changed.
pub(crate) fn changes_state(event: &Event, claim: &Claim) -> bool {
    match event {
        Event::Added { .. } => true,
        Event::Updated { old, .. } => old.view::<Claim>().map_or(true, |old| old.status != claim.status),
        Event::Deleted { .. } => false,
    }
}
