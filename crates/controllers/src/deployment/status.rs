//! Computes a Deployment's status. Pure.

use jiff::Timestamp;
use setpoint::Cached;

use super::bounds::Bounds;
use super::members::{Member, Members};
use super::progress::{self, NewSet};
use super::view::{Deployment, DeploymentStatus};
use crate::replicaset::REPLICA_FAILURE;
use crate::workload::condition::{self, Condition};

const AVAILABLE: &str = "Available";

/// Computes the status. `rolls_out` says whether to estimate progress.
pub(super) fn status(
    deployment: &Cached<Deployment>,
    members: &Members,
    new: NewSet<'_>,
    rolls_out: bool,
    now: Timestamp,
) -> DeploymentStatus {
    let mut before = deployment.status.clone();
    if !deployment.meta().is_being_deleted() {
        progress::note_pause(&mut before.conditions, deployment, now);
    }
    progress::note_new_set(&mut before.conditions, deployment, new, now);

    let mut after = counts(deployment, members);
    after.conditions = before.conditions.clone();
    condition::set(&mut after.conditions, availability(deployment, after.available_replicas, now));
    if rolls_out {
        progress::estimate(deployment, &before, &mut after, new, now);
        note_replica_failure(&mut after.conditions, members);
    }
    after
}

/// Returns the status after the new ReplicaSet could not be created. Nothing else is updated: the current template has
/// not been acted on.
pub(super) fn failed_creation(
    deployment: &Cached<Deployment>,
    message: &str,
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = deployment.status.clone();
    progress::note_pause(&mut status.conditions, deployment, now);
    progress::note_failed_creation(&mut status.conditions, deployment, message, now);
    status
}

/// Returns the status after a hash collision: the next hash differs.
pub(super) fn collided(deployment: &Cached<Deployment>) -> DeploymentStatus {
    let mut status = deployment.status.clone();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    status
}

/// Returns the status of a refused Deployment: only its observed generation changes.
pub(super) fn refused(deployment: &Cached<Deployment>) -> DeploymentStatus {
    let mut status = deployment.status.clone();
    status.observed_generation = status.observed_generation.max(deployment.meta().generation);
    status
}

fn counts(deployment: &Cached<Deployment>, members: &Members) -> DeploymentStatus {
    let available_replicas = members.available();
    let reported = |member: &Member| member.status().map_or(0, |status| status.replicas);
    DeploymentStatus {
        observed_generation: deployment.meta().generation,
        replicas: members.sum(reported),
        updated_replicas: members.new.as_ref().map_or(0, reported),
        ready_replicas: members.sum(|member| member.status().map_or(0, |status| status.ready_replicas)),
        available_replicas,
        // During a scale-down more pods may be available than wanted; none are missing then.
        unavailable_replicas: members.size().saturating_sub(available_replicas).max(0),
        terminating_replicas: terminating(members),
        conditions: Vec::new(),
        collision_count: deployment.status.collision_count,
    }
}

/// Returns the number of terminating pods, if all ReplicaSets report it.
fn terminating(members: &Members) -> Option<i32> {
    let sets = members.new.iter().chain(&members.old);
    let summary = sets.map(|member| member.status().and_then(|status| status.terminating_replicas));
    summary.sum::<Option<i32>>().filter(|_| members.new.is_some() || !members.old.is_empty())
}

fn availability(deployment: &Cached<Deployment>, available: i32, now: Timestamp) -> Condition {
    let (status, reason, message) = if available >= Bounds::of(&deployment.spec).min_available() {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    Condition::new(AVAILABLE, status, reason, message, now).updated(now)
}

/// Copies the ReplicaFailure condition of the new ReplicaSet, or else of any old one.
fn note_replica_failure(conditions: &mut Vec<Condition>, members: &Members) {
    let failure = members
        .new
        .iter()
        .chain(&members.old)
        .find_map(|member| condition::find(&member.status()?.conditions, REPLICA_FAILURE));
    match failure {
        Some(failure) => {
            let last_update_time = failure.last_transition_time;
            condition::set(conditions, Condition { last_update_time, ..failure.clone() });
        }
        None => condition::remove(conditions, REPLICA_FAILURE),
    }
}
