//! Proportional scaling during a rollout or while paused. Pure.
//!
//! Scaling only the new ReplicaSet up, or only old ones down, would speed up a rollout whose outcome is still open. So
//! all ReplicaSets are scaled in proportion.

use std::cmp::Reverse;

use super::bounds::Bounds;
use super::members::{Member, Members, by_age};
use super::revision;
use super::view::{Deployment, StrategyType};

/// Whether `replicas` changed since the active ReplicaSets were last scaled.
pub(super) fn is_due(members: &Members, bounds: &Bounds) -> bool {
    members
        .active()
        .filter_map(|set| revision::desired_replicas(&set.annotations))
        .any(|desired| desired != bounds.replicas)
}

/// Scales the ReplicaSets to the Deployment's current `replicas`.
pub(super) fn scale(members: &mut Members, deployment: &Deployment, bounds: &Bounds) {
    if let Some(only) = only_active_or_latest(members) {
        only.resize(bounds.replicas, bounds);
    } else if is_saturated(members, bounds) {
        members.old.iter_mut().filter(|old| old.is_active()).for_each(|old| old.resize(0, bounds));
    } else if deployment.spec.strategy.r#type == StrategyType::RollingUpdate {
        scale_in_proportion(members, deployment.status.replicas, bounds);
    }
}

/// Returns the only active ReplicaSet. If none is active, the new one or else the youngest; if several are, `None`.
fn only_active_or_latest(members: &mut Members) -> Option<&mut Member> {
    match members.active().count() {
        0 => match &mut members.new {
            Some(new) => Some(new),
            None => members.old.last_mut(),
        },
        1 => members.all_mut().find(|member| member.is_active()),
        _ => None,
    }
}

/// Whether the new ReplicaSet has all wanted pods, is annotated with that number, and all are available.
fn is_saturated(members: &Members, bounds: &Bounds) -> bool {
    members.new.as_ref().is_some_and(|new| {
        new.replicas == bounds.replicas
            && revision::desired_replicas(&new.annotations) == Some(bounds.replicas)
            && new.available() == bounds.replicas
    })
}

/// Distributes the difference to the allowed size over the active ReplicaSets in proportion, largest first. The largest
/// gets the rounding remainder. Among equals, the younger grows first and the older shrinks first.
fn scale_in_proportion(members: &mut Members, reported: i32, bounds: &Bounds) {
    let allowed = if bounds.replicas > 0 { bounds.max_total() } else { 0 };
    let to_add = allowed.saturating_sub(members.size());
    let mut active: Vec<&mut Member> = members.all_mut().filter(|member| member.is_active()).collect();
    active.sort_by(|a, b| {
        let by_age = if to_add > 0 { age(b).cmp(&age(a)) } else { age(a).cmp(&age(b)) };
        Reverse(a.replicas).cmp(&Reverse(b.replicas)).then(by_age)
    });

    let mut left = to_add;
    let mut sizes: Vec<i32> = Vec::with_capacity(active.len());
    for member in &active {
        let part = match left {
            0 => 0,
            _ if to_add > 0 => share(member, reported, bounds).min(left),
            _ => share(member, reported, bounds).max(left),
        };
        sizes.push(member.replicas.saturating_add(part));
        left = left.saturating_sub(part);
    }
    if let Some(largest) = sizes.first_mut() {
        *largest = largest.saturating_add(left).max(0);
    }
    for (member, size) in active.into_iter().zip(sizes) {
        member.resize_and_annotate(size, bounds);
    }
}

fn age(member: &Member) -> impl Ord + '_ {
    member.existing.as_ref().map(by_age)
}

/// Returns how much a ReplicaSet grows or shrinks in proportion. The previous maximum comes from its annotation or, if
/// that is missing or invalid, from the Deployment's status.
fn share(member: &Member, reported: i32, bounds: &Bounds) -> i32 {
    if bounds.replicas == 0 {
        return -member.replicas;
    }
    let before = revision::max_replicas(&member.annotations).filter(|max| *max != 0).unwrap_or(reported);
    if before == 0 {
        return 0;
    }
    let scaled = f64::from(member.replicas) * f64::from(bounds.max_total()) / f64::from(before);
    // Rounds half away from zero. Sizes are far below 2^53, so nothing else is lost.
    (scaled.round() as i32).saturating_sub(member.replicas)
}
