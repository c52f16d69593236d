//! Revisions, their history, and ReplicaSet annotations. Pure.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::members::Member;

/// The revision number of a ReplicaSet, and the current one of a Deployment.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revision numbers of a ReplicaSet that was rolled back to.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's `replicas` when the ReplicaSet was last scaled. If it differs now, the Deployment is being scaled.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// `replicas` plus surge at that time, the base of proportional scaling.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The revision to roll back to, set by old clients.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations that are never copied between a Deployment and its ReplicaSets.
const NOT_COPIED: [&str; 6] =
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

/// The maximum history length in characters, about a hundred revisions.
const MAX_HISTORY: usize = 2000;

pub(super) type Annotations = BTreeMap<String, String>;

/// Returns the revision annotation: 0 if absent, `None` if it is not a number.
pub(super) fn revision_of(annotations: &Annotations) -> Option<i64> {
    annotations.get(REVISION).map_or(Some(0), |revision| revision.parse().ok())
}

/// Returns the highest revision of these ReplicaSets.
pub(super) fn greatest_revision<'a>(members: impl IntoIterator<Item = &'a Member>) -> i64 {
    members.into_iter().filter_map(|member| revision_of(&member.annotations)).max().unwrap_or(0).max(0)
}

/// Lists annotations that are copied between a Deployment and its new ReplicaSet.
pub(super) fn copied(annotations: &Annotations) -> impl Iterator<Item = (&String, &String)> {
    annotations.iter().filter(|(key, _)| !NOT_COPIED.contains(&&***key))
}

/// Sets the annotations of the new ReplicaSet: those of the Deployment, and a revision of at least `revision`. Does
/// nothing if its current revision is not a number.
pub(super) fn annotate_new(set: &mut Annotations, deployment: &Annotations, revision: i64) {
    let Some(current) = revision_of(set) else { return };
    set.extend(copied(deployment).map(|(key, value)| (key.clone(), value.clone())));
    if current < revision {
        let replaced = set.insert(REVISION.into(), revision.to_string());
        // It already had a revision, so this is a rollback.
        if let Some(replaced) = replaced {
            remember(set, &replaced);
        }
    }
}

/// Appends a revision to the history, dropping the oldest if it gets too long.
fn remember(set: &mut Annotations, revision: &str) {
    let history = set.get(REVISION_HISTORY).map_or("", String::as_str);
    let mut kept: Vec<&str> = history.split(',').filter(|old| !old.is_empty()).chain([revision]).collect();
    while kept.join(",").len() > MAX_HISTORY {
        kept.remove(0);
    }
    let history = kept.join(",");
    set.insert(REVISION_HISTORY.into(), history);
}

/// Sets the desired-replicas and max-replicas annotations.
pub(super) fn annotate_size(set: &mut Annotations, bounds: &Bounds) {
    set.insert(DESIRED_REPLICAS.into(), bounds.replicas.to_string());
    set.insert(MAX_REPLICAS.into(), bounds.max_total().to_string());
}

/// Returns the desired-replicas annotation.
pub(super) fn desired_replicas(set: &Annotations) -> Option<i32> {
    count(set.get(DESIRED_REPLICAS)?)
}

/// Returns the max-replicas annotation.
pub(super) fn max_replicas(set: &Annotations) -> Option<i32> {
    count(set.get(MAX_REPLICAS)?)
}

fn count(text: &str) -> Option<i32> {
    text.parse().ok().filter(|count| *count >= 0)
}
