//! The current and the update revision.

use std::collections::BTreeSet;

use setpoint::owner::controller_ref;
use setpoint::{Cached, Kind, ReconcileError};

use super::plan::{Revisions, revision_of};
use super::view::StatefulSet;
use crate::workload::history::{Made, NewRevision, Revision, RevisionStore, revision_name, sort};
use crate::workload::pod::Pod;
use crate::workload::template::{PodTemplate, with_label};

const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// Hash collisions are rare; this many in a row indicate another problem.
const MAX_COLLISIONS: usize = 16;

/// The current and update revision, with their templates.
pub(super) struct History {
    pub(super) names: Revisions,
    pub(super) current: PodTemplate,
    pub(super) update: PodTemplate,
    pub(super) collision_count: i32,
    /// All revisions of the set, oldest first.
    pub(super) all: Vec<Cached<Revision>>,
}

/// Finds, renumbers or creates the revision of the current template.
pub(super) async fn history(
    revision_store: &RevisionStore,
    set: &Cached<StatefulSet>,
    mut all: Vec<Cached<Revision>>,
) -> Result<History, ReconcileError> {
    sort(&mut all);
    let template = &set.spec.template;
    let mut collision_count = set.status.collision_count.unwrap_or(0);
    let next = all.last().map_or(1, |last| last.number.saturating_add(1));
    let update = match all.iter().rev().find(|revision| revision.is_of(template)) {
        Some(last) if all.last().is_some_and(|newest| newest.is_of(template)) => {
            all.last().unwrap_or(last).clone()
        }
        // An older template was restored.
        Some(older) => revision_store.renumber(set.key(), older, next).await?,
        None => make(revision_store, set, next, &mut collision_count).await?,
    };
    let current = all.iter().find(|revision| *revision.meta().name == *set.status.current_revision);
    let current = current.unwrap_or(&update).clone();
    let names =
        Revisions { current: current.meta().name.to_string(), update: update.meta().name.to_string() };
    Ok(History { names, current: restored(&current)?, update: restored(&update)?, collision_count, all })
}

async fn make(
    revision_store: &RevisionStore,
    set: &Cached<StatefulSet>,
    number: i64,
    collision_count: &mut i32,
) -> Result<Cached<Revision>, ReconcileError> {
    let template = &set.spec.template;
    for _ in 0..MAX_COLLISIONS {
        let hash = template.hash(Some(*collision_count));
        let new = NewRevision {
            name: revision_name(&set.meta().name, &hash),
            labels: with_label(&template.metadata.labels, HASH_LABEL, &hash),
            annotations: &set.metadata.annotations,
            owner: controller_ref(&Kind::of::<StatefulSet>(), set.meta()),
            template,
            number,
        };
        match revision_store.make(set.object(), &new).await? {
            Made::Revision(revision) => return Ok(revision),
            Made::Collision => *collision_count = collision_count.saturating_add(1),
        }
    }
    Err(ReconcileError::retry(format!("find a free name for a revision of {}", set.key())))
}

fn restored(revision: &Cached<Revision>) -> Result<PodTemplate, ReconcileError> {
    let template = revision.template.clone();
    template
        .ok_or_else(|| ReconcileError::terminal(format!("read the template in revision {}", revision.key())))
}

/// Returns the revisions to delete: the oldest beyond the limit that no pod uses.
pub(super) fn excess<'a>(
    set: &StatefulSet,
    history: &'a History,
    pods: &[Cached<Pod>],
) -> Vec<&'a Cached<Revision>> {
    let Ok(limit) = usize::try_from(set.spec.revision_history_limit) else { return Vec::new() };
    let mut live: BTreeSet<&str> = pods.iter().filter_map(|pod| revision_of(pod.meta())).collect();
    live.extend([&*history.names.current, &*history.names.update]);
    let mut past: Vec<_> =
        history.all.iter().filter(|revision| !live.contains(&*revision.meta().name)).collect();
    past.truncate(past.len().saturating_sub(limit));
    past
}
