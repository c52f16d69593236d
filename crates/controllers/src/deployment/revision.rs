//! Revisions, their history, and what a set is annotated with. Pure.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::members::Member;

/// The place of a set in the sequence of rollouts, and of a Deployment's current one.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The earlier places of a set that was rolled back to.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The size of the Deployment that a set was last sized for: another one means it is being scaled.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// That size with its surge, from which proportions are estimated.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The revision to roll back to, written by clients of long ago.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is the Deployment's, or the set's, own: never copied between them.
const NOT_COPIED: [&str; 6] =
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

/// The longest history in characters, about a hundred revisions.
const MAX_HISTORY: usize = 2000;

pub(super) type Annotations = BTreeMap<String, String>;

/// The revision that annotations tell: 0 where they tell none, `None` where they tell no number.
pub(super) fn revision_of(annotations: &Annotations) -> Option<i64> {
    annotations.get(REVISION).map_or(Some(0), |revision| revision.parse().ok())
}

/// The greatest revision of these sets.
pub(super) fn greatest_revision<'a>(members: impl IntoIterator<Item = &'a Member>) -> i64 {
    members.into_iter().filter_map(|member| revision_of(&member.annotations)).max().unwrap_or(0).max(0)
}

/// The annotations that are copied between a Deployment and its new set.
pub(super) fn copied(annotations: &Annotations) -> impl Iterator<Item = (&String, &String)> {
    annotations.iter().filter(|(key, _)| !NOT_COPIED.contains(&&***key))
}

/// Annotates the new set: the Deployment's own annotations, and a revision no less than `revision`.
/// A revision that is no number is left alone, and everything with it.
pub(super) fn annotate_new(set: &mut Annotations, deployment: &Annotations, revision: i64) {
    let Some(current) = revision_of(set) else { return };
    set.extend(copied(deployment).map(|(key, value)| (key.clone(), value.clone())));
    if current < revision {
        let replaced = set.insert(REVISION.into(), revision.to_string());
        // A set that had a revision is one that is rolled back to.
        if let Some(replaced) = replaced {
            remember(set, &replaced);
        }
    }
}

/// Adds a revision to the history, dropping the oldest ones where it would grow too long.
fn remember(set: &mut Annotations, revision: &str) {
    let history = set.get(REVISION_HISTORY).map_or("", String::as_str);
    let mut kept: Vec<&str> = history.split(',').filter(|old| !old.is_empty()).chain([revision]).collect();
    while kept.join(",").len() > MAX_HISTORY {
        kept.remove(0);
    }
    let history = kept.join(",");
    set.insert(REVISION_HISTORY.into(), history);
}

/// Annotates a set with the size of the Deployment it is sized for.
pub(super) fn annotate_size(set: &mut Annotations, bounds: &Bounds) {
    set.insert(DESIRED_REPLICAS.into(), bounds.replicas.to_string());
    set.insert(MAX_REPLICAS.into(), bounds.most().to_string());
}

/// The size that a set was last sized for.
pub(super) fn desired_replicas(set: &Annotations) -> Option<i32> {
    count(set.get(DESIRED_REPLICAS)?)
}

/// That size with its surge.
pub(super) fn max_replicas(set: &Annotations) -> Option<i32> {
    count(set.get(MAX_REPLICAS)?)
}

fn count(text: &str) -> Option<i32> {
    text.parse().ok().filter(|count| *count >= 0)
}
