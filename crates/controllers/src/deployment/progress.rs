//! Whether a rollout progresses, is complete or is stuck. Pure.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::Cached;

use super::view::{Deployment, DeploymentStatus};
use crate::workload::condition::{self, Condition};

pub(super) const PROGRESSING: &str = "Progressing";

mod reason {
    pub(super) const CREATED: &str = "NewReplicaSetCreated";
    pub(super) const FOUND: &str = "FoundNewReplicaSet";
    pub(super) const UPDATED: &str = "ReplicaSetUpdated";
    pub(super) const AVAILABLE: &str = "NewReplicaSetAvailable";
    pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
    pub(super) const PAUSED: &str = "DeploymentPaused";
    pub(super) const RESUMED: &str = "DeploymentResumed";
}

/// Condition and event reason for a ReplicaSet that could not be created.
pub(super) const CREATE_ERROR: &str = "ReplicaSetCreateError";

/// The new ReplicaSet in this sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewSet<'a> {
    /// There is none.
    None,
    /// It already existed.
    Found(&'a str),
    /// It was created.
    Created(&'a str),
}

impl NewSet<'_> {
    /// The subject of progress messages.
    fn subject(&self, deployment: &Cached<Deployment>) -> String {
        match self {
            Self::None => format!("Deployment {:?}", &*deployment.meta().name),
            Self::Found(name) | Self::Created(name) => format!("ReplicaSet {name:?}"),
        }
    }
}

/// Whether all pods have the current template and are available, and no other pods are left.
pub(super) fn is_complete(deployment: &Cached<Deployment>, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas;
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.meta().generation
}

/// Records that the Deployment was paused or resumed. The progress deadline does not run while it is paused.
pub(super) fn note_pause(conditions: &mut Vec<Condition>, deployment: &Cached<Deployment>, now: Timestamp) {
    let current = condition::find(conditions, PROGRESSING).map(|current| &*current.reason);
    let was_paused = current == Some(reason::PAUSED);
    if deployment.spec.progress_deadline().is_none() || current == Some(reason::TIMED_OUT) {
        return;
    }
    match (deployment.spec.paused, was_paused) {
        (true, false) => {
            condition::set(conditions, progressing("Unknown", reason::PAUSED, "Deployment is paused", now));
        }
        (false, true) => {
            condition::set(conditions, progressing("Unknown", reason::RESUMED, "Deployment is resumed", now));
        }
        _ => {}
    }
}

/// Records the new ReplicaSet. Creating one starts a rollout; finding one starts it only if there is no Progressing
/// condition.
pub(super) fn note_new_set(
    conditions: &mut Vec<Condition>,
    deployment: &Cached<Deployment>,
    new: NewSet<'_>,
    now: Timestamp,
) {
    if deployment.spec.progress_deadline().is_none() {
        return;
    }
    match new {
        NewSet::Created(name) => {
            let message = format!("Created new replica set {name:?}");
            condition::set(conditions, progressing("True", reason::CREATED, message, now));
        }
        NewSet::Found(name) if condition::find(conditions, PROGRESSING).is_none() => {
            let message = format!("Found new replica set {name:?}");
            condition::set(conditions, progressing("True", reason::FOUND, message, now));
        }
        _ => {}
    }
}

/// Records that the new ReplicaSet could not be created.
pub(super) fn note_failed_creation(
    conditions: &mut Vec<Condition>,
    deployment: &Cached<Deployment>,
    message: &str,
    now: Timestamp,
) {
    if deployment.spec.progress_deadline().is_some() {
        condition::set(conditions, progressing("False", CREATE_ERROR, message, now));
    }
}

/// Sets the Progressing condition of the new status from the difference to the old one.
pub(super) fn estimate(
    deployment: &Cached<Deployment>,
    before: &DeploymentStatus,
    after: &mut DeploymentStatus,
    new: NewSet<'_>,
    now: Timestamp,
) {
    let Some(deadline) = deployment.spec.progress_deadline() else {
        return condition::remove(&mut after.conditions, PROGRESSING);
    };
    let current = condition::find(&before.conditions, PROGRESSING);
    let over = current.is_some_and(|current| current.reason == reason::AVAILABLE);
    if over && after.replicas == after.updated_replicas {
        return;
    }
    let subject = new.subject(deployment);
    if is_complete(deployment, after) {
        let message = format!("{subject} has successfully progressed.");
        condition::set(&mut after.conditions, progressing("True", reason::AVAILABLE, message, now));
    } else if has_progressed(before, after) {
        let mut moving = progressing("True", reason::UPDATED, format!("{subject} is progressing."), now);
        // Always update the time: the deadline runs from the last update.
        if let Some(current) = current.filter(|current| current.is_true()) {
            moving.last_transition_time = current.last_transition_time;
        }
        condition::remove(&mut after.conditions, PROGRESSING);
        after.conditions.push(moving);
    } else if current.is_some_and(|current| has_timed_out(current, deadline, now)) {
        let message = format!("{subject} has timed out progressing.");
        condition::set(&mut after.conditions, progressing("False", reason::TIMED_OUT, message, now));
    }
}

/// Whether there are more updated, ready or available pods, or fewer old ones.
fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    after.updated_replicas > before.updated_replicas
        || old(after) < old(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

fn has_timed_out(current: &Condition, deadline: i32, now: Timestamp) -> bool {
    match &*current.reason {
        // A completed rollout cannot time out. The next rollout replaces the condition first.
        reason::AVAILABLE => false,
        reason::TIMED_OUT => true,
        _ => left(current, deadline, now).is_none_or(|left| left.is_negative()),
    }
}

/// Returns the time left until the deadline. `None` if the condition has no update time.
fn left(current: &Condition, deadline: i32, now: Timestamp) -> Option<jiff::SignedDuration> {
    let since = current.last_update_time?;
    Some(now.duration_until(since) + jiff::SignedDuration::from_secs(deadline.into()))
}

/// When to check whether a stuck rollout has exceeded its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCheck {
    Never,
    /// Within the next second.
    Soon,
    After(Duration),
}

pub(super) fn next_check(
    deployment: &Cached<Deployment>,
    status: &DeploymentStatus,
    now: Timestamp,
) -> NextCheck {
    let current = condition::find(&status.conditions, PROGRESSING);
    let (Some(deadline), Some(current)) = (deployment.spec.progress_deadline(), current) else {
        return NextCheck::Never;
    };
    if is_complete(deployment, status) || current.reason == reason::TIMED_OUT {
        return NextCheck::Never;
    }
    let second = jiff::SignedDuration::from_secs(1);
    match left(current, deadline, now).filter(|left| *left >= second) {
        // One second later, to be sure the deadline has passed.
        Some(left) => Duration::try_from(left + second).map_or(NextCheck::Soon, NextCheck::After),
        None => NextCheck::Soon,
    }
}

fn progressing(status: &str, reason: &str, message: impl Into<String>, now: Timestamp) -> Condition {
    Condition::new(PROGRESSING, status, reason, message, now).updated(now)
}
