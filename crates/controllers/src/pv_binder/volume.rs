//! What to do about a volume. Pure.

use setpoint::Cached;
use setpoint_volume::{Claim, PROVISIONED_BY, Volume, matching};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is in this phase.
    Be(&'static str),
    /// Its claim has yet to take it.
    WakeClaim,
    /// Its claim asks for another kind of volume.
    Mismatch,
    /// Its claim is gone, or was given another one: it is reclaimed.
    Release,
    /// Its claim has another volume: it is free again.
    Unbind,
}

/// Whether the volume points to a claim that should be there.
pub(super) fn is_bound(volume: &Volume) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| !reference.uid.is_empty())
}

/// Whether the end of its claim has been seen before.
pub(super) fn is_released(volume: &Volume) -> bool {
    matches!(&*volume.status.phase, "Released" | "Failed")
}

/// `claim` is the one that the volume points to, if that is there.
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

/// Nobody else needs a volume that was made for one claim.
fn was_made_for_it(volume: &Volume) -> bool {
    volume.metadata.has(PROVISIONED_BY) && &*volume.spec.persistent_volume_reclaim_policy == "Delete"
}
