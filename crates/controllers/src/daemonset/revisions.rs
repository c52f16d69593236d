//! The current and old revisions of a DaemonSet's template.

use setpoint::client::{Patch, Subresource};
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, Kind, ReconcileError};

use super::plan::live_hashes;
use super::view::DaemonSet;
use crate::workload::history::{Made, NewRevision, REVISION_LABEL, Revision, RevisionStore, sort};
use crate::workload::pod::Pod;
use crate::workload::template::with_label;

/// The current revision and the older ones.
pub(super) struct History {
    pub(super) current: Cached<Revision>,
    /// Oldest first.
    pub(super) old: Vec<Cached<Revision>>,
}

/// The result of looking for the current revision.
pub(super) enum RevisionLookup {
    History(History),
    /// The name is taken by a different template. The next attempt uses another name.
    Collision,
}

/// Finds, renumbers or creates the revision of the current template. Of duplicates, the newest is kept.
pub(super) async fn history(
    (client, revision_store): (&Client, &RevisionStore),
    set: &Cached<DaemonSet>,
    mut all: Vec<Cached<Revision>>,
    pods: &[Cached<Pod>],
) -> Result<RevisionLookup, ReconcileError> {
    sort(&mut all);
    let (mut same, old): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.is_of(&set.spec.template));
    let number = old.iter().map(|revision| revision.number).max().unwrap_or(0).saturating_add(1);
    let Some(current) = same.pop() else {
        return Ok(match make(revision_store, set, number).await? {
            Made::Revision(current) => RevisionLookup::History(History { current, old }),
            Made::Collision => RevisionLookup::Collision,
        });
    };
    if !same.is_empty() {
        relabel(client, pods, hash_of(&current)).await?;
    }
    for duplicate in &same {
        revision_store.delete(set.key(), duplicate).await?;
    }
    let current = if current.number < number {
        revision_store.renumber(set.key(), &current, number).await?
    } else {
        current
    };
    Ok(RevisionLookup::History(History { current, old }))
}

async fn make(
    revision_store: &RevisionStore,
    set: &Cached<DaemonSet>,
    number: i64,
) -> Result<Made, ReconcileError> {
    let template = &set.spec.template;
    let hash = template.hash(set.status.collision_count);
    let new = NewRevision {
        name: format!("{}-{hash}", set.meta().name),
        labels: with_label(&template.metadata.labels, REVISION_LABEL, &hash),
        annotations: &set.metadata.annotations,
        owner: controller_ref(&Kind::of::<DaemonSet>(), set.meta()),
        template,
        number,
    };
    revision_store.make(set.object(), &new).await
}

/// Relabels pods of a deleted duplicate revision.
async fn relabel(client: &Client, pods: &[Cached<Pod>], hash: &str) -> Result<(), ReconcileError> {
    let kind = Kind::of::<Pod>();
    let others = pods.iter().filter(|pod| pod.meta().labels.get(REVISION_LABEL) != Some(hash));
    for pod in others {
        let patch =
            serde_json::json!({"metadata": {"uid": pod.meta().uid, "labels": {REVISION_LABEL: hash}}});
        let patched = client.patch(&kind, pod.key(), Subresource::None, Patch::merge(&patch)).await;
        patched.attempting(format!("relabel pod {}", pod.key()))?;
    }
    Ok(())
}

/// Returns the hash that pods are labelled with. Very old revisions have none; their name is used.
pub(super) fn hash_of(revision: &Cached<Revision>) -> &str {
    revision.meta().labels.get(REVISION_LABEL).unwrap_or(&revision.meta().name)
}

/// Returns the revisions to delete: the oldest beyond the limit that no pod uses.
pub(super) fn excess<'a>(
    set: &DaemonSet,
    history: &'a History,
    pods: &[Cached<Pod>],
) -> Vec<&'a Cached<Revision>> {
    let limit = usize::try_from(set.spec.revision_history_limit).unwrap_or(0);
    let live = live_hashes(pods);
    let unused = history.old.iter().filter(|revision| !live.contains(hash_of(revision)));
    unused.take(history.old.len().saturating_sub(limit)).collect()
}
