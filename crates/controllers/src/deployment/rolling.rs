//! RollingUpdate: scale up the new ReplicaSet, scale down old ones. Pure.

use super::bounds::Bounds;
use super::members::{Member, Members};

/// Returns the size of the new ReplicaSet: as large as the bounds allow, but at most `replicas`.
///
/// It does not grow while any ReplicaSet has more pods than its size: the bounds limit pods, and a ReplicaSet that was
/// scaled down has not freed anything until its pods are gone.
pub(super) fn new_size(members: &Members, new: &Member, bounds: &Bounds) -> i32 {
    if new.replicas >= bounds.replicas {
        return bounds.replicas;
    }
    if members.all().any(Member::has_excess_pods) {
        return new.replicas;
    }
    let room = bounds.max_total().saturating_sub(members.size()).max(0);
    new.replicas.saturating_add(room).min(bounds.replicas)
}

/// Takes the next step of a rollout whose new ReplicaSet exists. Either resizes the new ReplicaSet or scales down old
/// ones, not both: the availability of the new pods decides how many old pods can go. Returns whether anything changed.
pub(super) fn step(members: &mut Members, bounds: &Bounds) -> bool {
    resize_new(members, bounds) || shrink_old(members, bounds)
}

fn resize_new(members: &mut Members, bounds: &Bounds) -> bool {
    let Some(new) = &members.new else { return false };
    let (from, to) = (new.replicas, new_size(members, new, bounds));
    if let Some(new) = &mut members.new {
        new.resize(to, bounds);
    }
    from != to
}

/// Scales down old ReplicaSets: first by unavailable pods, then by available ones as the bounds allow.
fn shrink_old(members: &mut Members, bounds: &Bounds) -> bool {
    let before = members.size();
    // Unavailable new pods do not replace old ones: only pods beyond the minimum available plus the unavailable new
    // ones can go.
    let new_unavailable = members.new.as_ref().map_or(0, |new| new.replicas.saturating_sub(new.available()));
    let spare = before.saturating_sub(bounds.min_available()).saturating_sub(new_unavailable);
    let available = available(members);
    if spare > 0 && drop_unavailable(members, bounds, spare) {
        drop_available(members, bounds, available.saturating_sub(bounds.min_available()));
    }
    members.size() != before
}

/// Removes up to `spare` unavailable pods. Returns false if the status of an old ReplicaSet is stale: it reports more
/// available pods than its size.
fn drop_unavailable(members: &mut Members, bounds: &Bounds, mut spare: i32) -> bool {
    for old in members.old.iter_mut().filter(|old| old.is_active()) {
        if spare <= 0 {
            break;
        }
        let unavailable = old.replicas.saturating_sub(old.available());
        if unavailable < 0 {
            return false;
        }
        let dropped = unavailable.min(spare);
        old.resize(old.replicas - dropped, bounds);
        spare -= dropped;
    }
    true
}

/// Returns the number of available pods. Pods of ReplicaSets scaled to zero are not counted: they are going away.
fn available(members: &Members) -> i32 {
    members.old.iter().filter(|old| old.is_active()).chain(&members.new).map(Member::available).sum()
}

/// Removes `spare` available pods.
fn drop_available(members: &mut Members, bounds: &Bounds, mut spare: i32) {
    for old in members.old.iter_mut().filter(|old| old.is_active()) {
        if spare <= 0 {
            break;
        }
        let dropped = old.replicas.min(spare);
        old.resize(old.replicas - dropped, bounds);
        spare -= dropped;
    }
}
