//! Rollback to an earlier revision, requested by the deprecated annotation. Pure.

use setpoint::Cached;

use super::Deployment;
use super::members::{Member, Members};
use super::revision::{self, Annotations, ROLLBACK_TO};
use crate::workload::template::PodTemplate;

/// The result of a rollback request. The request is removed in any case.
#[derive(Clone)]
pub(super) enum Rollback {
    /// Restore this template and its annotations.
    To { revision: i64, template: Box<PodTemplate>, annotations: Annotations },
    /// The template is already current.
    Unchanged,
    /// The revision does not exist, or there is no previous one.
    NotFound { asked_for_last: bool },
}

/// Returns the requested revision, 0 for the previous one. `None` if there is no request or it is not a number.
pub(super) fn requested(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotations.get(ROLLBACK_TO)?.parse().ok()
}

pub(super) fn rollback(deployment: &Cached<Deployment>, members: &Members, asked: i64) -> Rollback {
    let target = if asked == 0 { last_revision(members) } else { asked };
    if target == 0 {
        return Rollback::NotFound { asked_for_last: true };
    }
    match members.all().find(|member| member.revision() == Some(target)) {
        Some(member) => to_member(deployment, member, target),
        None => Rollback::NotFound { asked_for_last: false },
    }
}

fn to_member(deployment: &Cached<Deployment>, member: &Member, revision: i64) -> Rollback {
    // A ReplicaSet that is not created yet has the Deployment's current template.
    let Some(set) = &member.existing else { return Rollback::Unchanged };
    if set.spec.template.same_pods_as(&deployment.spec.template) {
        return Rollback::Unchanged;
    }
    Rollback::To {
        revision,
        template: Box::new(set.spec.template.without_hash()),
        annotations: annotations(&deployment.metadata.annotations, &member.annotations),
    }
}

/// Returns the Deployment's annotations for that revision: its own are kept, copied ones are restored from the
/// ReplicaSet.
fn annotations(deployment: &Annotations, set: &Annotations) -> Annotations {
    let replaced: Vec<_> = revision::copied(deployment).map(|(key, _)| key).collect();
    let own = deployment.iter().filter(|(key, _)| !replaced.contains(key) && *key != ROLLBACK_TO);
    own.chain(revision::copied(set)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the second highest revision.
fn last_revision(members: &Members) -> i64 {
    let mut revisions: Vec<i64> = members.all().filter_map(Member::revision).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}
