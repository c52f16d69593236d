//! Plans what to do about a volume. Pure.

use setpoint::Cached;
use setpoint_volume::{Claim, PROVISIONED_BY, Volume, matching};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Set this phase.
    Be(&'static str),
    /// Wait for its claim to complete the binding.
    WakeClaim,
    /// Its claim requests another volume mode.
    Mismatch,
    /// Reclaim it: its claim is gone, or bound to another volume although this one was provisioned for it.
    Release,
    /// Unbind it: its claim is bound to another volume.
    Unbind,
}

/// Whether the volume is bound to a specific claim, by uid.
pub(super) fn is_bound(volume: &Volume) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| !reference.uid.is_empty())
}

/// Whether its claim was already found to be gone.
pub(super) fn is_released(volume: &Volume) -> bool {
    matches!(&*volume.status.phase, "Released" | "Failed")
}

/// Plans for a volume. `claim` is the claim it references, if that exists.
pub(super) fn plan(volume: &Cached<Volume>, claim: Option<&Cached<Claim>>) -> Plan {
    if !is_bound(volume) {
        return Plan::Be("Available");
    }
    let Some(claim) = claim else { return Plan::Release };
    match &*claim.spec.volume_name {
        "" if !matching::same_mode(volume, claim) => Plan::Mismatch,
        "" => Plan::WakeClaim,
        name if name == volume.key().name() => Plan::Be("Bound"),
        _ if was_made_for_it(volume) => Plan::Release,
        _ => Plan::Unbind,
    }
}

/// Whether the volume was dynamically provisioned for its claim, so that no other claim needs it.
fn was_made_for_it(volume: &Volume) -> bool {
    volume.metadata.has(PROVISIONED_BY) && &*volume.spec.persistent_volume_reclaim_policy == "Delete"
}
