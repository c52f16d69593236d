//! Whether a rollout moves, has ended or is stuck. Pure.

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

/// The reason, of a condition and of an event, that a set could not be created.
pub(super) const CREATE_ERROR: &str = "ReplicaSetCreateError";

/// How the Deployment came by its new set in this sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewSet<'a> {
    /// It has none.
    None,
    /// It was there.
    Found(&'a str),
    /// It was made.
    Created(&'a str),
}

impl NewSet<'_> {
    /// What is said to progress.
    fn subject(&self, deployment: &Cached<Deployment>) -> String {
        match self {
            Self::None => format!("Deployment {:?}", &*deployment.meta().name),
            Self::Found(name) | Self::Created(name) => format!("ReplicaSet {name:?}"),
        }
    }
}

/// Whether all pods are of the current template and available, and no others are left.
pub(super) fn is_complete(deployment: &Cached<Deployment>, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas;
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.meta().generation
}

/// Notes that the Deployment was paused or resumed: the deadline does not run while it is paused.
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

/// Notes a new set: one that was made begins a rollout; one that was found does where none is known.
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

/// Notes that the new set could not be made.
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

/// Estimates from the status before and after whether the rollout moves, and notes it in the latter.
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
    } else if has_moved(before, after) {
        let mut moving = progressing("True", reason::UPDATED, format!("{subject} is progressing."), now);
        // Told anew each time, since the deadline runs from the last time it was told.
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

/// Whether new pods came, became ready or available, or old ones went.
fn has_moved(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    after.updated_replicas > before.updated_replicas
        || old(after) < old(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

fn has_timed_out(current: &Condition, deadline: i32, now: Timestamp) -> bool {
    match &*current.reason {
        // A rollout that has ended cannot time out; a later one is noted before it can.
        reason::AVAILABLE => false,
        reason::TIMED_OUT => true,
        _ => left(current, deadline, now).is_none_or(|left| left.is_negative()),
    }
}

/// The time left until the deadline; `None` where it is not known since when it runs.
fn left(current: &Condition, deadline: i32, now: Timestamp) -> Option<jiff::SignedDuration> {
    let since = current.last_update_time?;
    Some(now.duration_until(since) + jiff::SignedDuration::from_secs(deadline.into()))
}

/// When to look again whether a rollout that does not move has passed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCheck {
    Never,
    /// It is about to.
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
        // A second more, so that it is certain to have passed.
        Some(left) => Duration::try_from(left + second).map_or(NextCheck::Soon, NextCheck::After),
        None => NextCheck::Soon,
    }
}

fn progressing(status: &str, reason: &str, message: impl Into<String>, now: Timestamp) -> Condition {
    Condition::new(PROGRESSING, status, reason, message, now).updated(now)
}
