//! Recreate: delete old pods, then create new ones. Pure.

use super::bounds::Bounds;
use super::members::Members;

/// Scales all old ReplicaSets to zero. Returns whether any had to be.
pub(super) fn shrink_old(members: &mut Members, bounds: &Bounds) -> bool {
    let before = members.size();
    members.old.iter_mut().for_each(|old| old.resize(0, bounds));
    members.size() != before
}

/// Whether pods of old ReplicaSets may still run, according to their status or `busy`, the uids of ReplicaSets with
/// unfinished pods.
pub(super) fn old_pods_run(members: &Members, busy: &[Box<str>]) -> bool {
    members.old.iter().any(|old| {
        let reported = old.status().is_some_and(|status| status.replicas > 0);
        reported || old.existing.as_ref().is_some_and(|set| busy.contains(&set.meta().uid))
    })
}
