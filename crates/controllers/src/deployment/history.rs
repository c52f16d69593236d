//! Old ReplicaSets beyond the history limit. Pure.

use setpoint::Cached;

use super::members::{Member, Members, by_age};
use crate::replicaset::ReplicaSet;

/// Returns the ReplicaSets to delete: those older than the `limit` newest revisions. One with pods, or whose status is
/// behind its spec, is kept for now.
pub(super) fn revisions_to_delete(members: &Members, limit: usize) -> Vec<Cached<ReplicaSet>> {
    let mut old: Vec<_> = members.old.iter().filter_map(deletion_candidate).collect();
    old.sort_by(|(a, revision_a, _), (b, revision_b, _)| {
        revision_a.cmp(revision_b).then_with(|| by_age(a).cmp(&by_age(b)))
    });
    let surplus = old.len().saturating_sub(limit);
    old.into_iter().take(surplus).filter(|(_, _, settled)| *settled).map(|(set, _, _)| set.clone()).collect()
}

/// Returns a ReplicaSet that is not being deleted, its revision, and whether it is settled without pods.
fn deletion_candidate(member: &Member) -> Option<(&Cached<ReplicaSet>, i64, bool)> {
    let set = member.existing.as_ref().filter(|set| !set.meta().is_being_deleted())?;
    let settled = member.replicas == 0
        && set.spec.replicas == 0
        && set.status.replicas == 0
        && set.meta().generation <= set.status.observed_generation;
    Some((set, member.revision().unwrap_or(0), settled))
}
