//! Back to an earlier revision, as clients of long ago asked for it: by an annotation. Pure.

use setpoint::Cached;

use super::Deployment;
use super::members::{Member, Members};
use super::revision::{self, Annotations, ROLLBACK_TO};
use crate::workload::template::PodTemplate;

/// What comes of the request. In any case the request is then removed.
#[derive(Clone)]
pub(super) enum Rollback {
    /// Take this template, and the annotations that go with it.
    To { revision: i64, template: Box<PodTemplate>, annotations: Annotations },
    /// It is the current template already.
    Unchanged,
    /// There is no such revision, or none to go back to.
    NotFound { asked_for_last: bool },
}

/// The revision asked for, 0 meaning the last one; `None` where nobody asks or what is asked for is
/// no number.
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
    // A set that is yet to be created has the Deployment's own template.
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

/// The Deployment's annotations as they were with that revision: its own stay, those that are copied
/// come back from the set.
fn annotations(deployment: &Annotations, set: &Annotations) -> Annotations {
    let replaced: Vec<_> = revision::copied(deployment).map(|(key, _)| key).collect();
    let own = deployment.iter().filter(|(key, _)| !replaced.contains(key) && *key != ROLLBACK_TO);
    own.chain(revision::copied(set)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The second greatest revision.
fn last_revision(members: &Members) -> i64 {
    let mut revisions: Vec<i64> = members.all().filter_map(Member::revision).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}
