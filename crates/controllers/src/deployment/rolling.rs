//! RollingUpdate: up with the new, down with the old. Pure.

use super::bounds::Bounds;
use super::members::{Member, Members};

/// The size of the new set: as much as the bounds leave room for, and never more than wanted.
///
/// A set that still has pods beyond its size holds growth back: room that a shrunken set has not made
/// yet is not room, and pods, not sizes, are what the bounds are about.
pub(super) fn new_size(members: &Members, new: &Member, bounds: &Bounds) -> i32 {
    if new.replicas >= bounds.replicas {
        return bounds.replicas;
    }
    if members.all().any(Member::has_pods_to_lose) {
        return new.replicas;
    }
    let room = bounds.most().saturating_sub(members.size()).max(0);
    new.replicas.saturating_add(room).min(bounds.replicas)
}

/// Takes the next step of a rollout whose new set is there. Either the new set grows (or shrinks to
/// what is wanted) or old ones shrink, not both: how the new pods fare decides how many old ones can
/// go. Says whether there was a step to take.
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

/// Shrinks old sets: first by pods that are not available anyway, then by available ones as far as
/// the bounds allow.
fn shrink_old(members: &mut Members, bounds: &Bounds) -> bool {
    let before = members.size();
    // New pods that are not available yet must not cost old ones their place: what can go is what
    // there is beyond the fewest available and those.
    let new_unavailable = members.new.as_ref().map_or(0, |new| new.replicas.saturating_sub(new.available()));
    let spare = before.saturating_sub(bounds.fewest_available()).saturating_sub(new_unavailable);
    let available = available(members);
    if spare > 0 && drop_unavailable(members, bounds, spare) {
        drop_available(members, bounds, available.saturating_sub(bounds.fewest_available()));
    }
    members.size() != before
}

/// Gives up to `spare` pods that are not available. Says whether the old sets' word about their pods
/// can be relied on: a set that reports more available pods than it should have has not caught up
/// with its own size.
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

/// How many pods can be relied on: what a set of size zero still reports is going away.
fn available(members: &Members) -> i32 {
    members.old.iter().filter(|old| old.is_active()).chain(&members.new).map(Member::available).sum()
}

/// Gives up `spare` available pods.
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
