//! Plans which pods to delete, and why. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use setpoint::{Cached, Key};

use super::view::Node;
use crate::workload::pod::{Phase, Pod};

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionReason {
    /// It has finished, and there are too many finished pods.
    Terminated,
    /// It is terminating on a node that is out of service.
    OutOfService,
    /// Its node is gone.
    Orphaned,
    /// It is terminating and was never scheduled.
    Unscheduled,
}

impl DeletionReason {
    /// The reason in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }
}

#[derive(Clone)]
pub(super) struct Removal {
    pub(super) pod: Cached<Pod>,
    pub(super) reason: DeletionReason,
}

/// Returns the nodes that pods are bound to and that are not in `nodes`.
pub(super) fn missing_nodes<'a>(pods: &'a [Cached<Pod>], nodes: &BTreeMap<&str, Node>) -> BTreeSet<&'a str> {
    let bound = pods.iter().map(|pod| &*pod.node).filter(|node| !node.is_empty());
    bound.filter(|node| !nodes.contains_key(node)).collect()
}

/// Returns the pods to delete, each once. `gone` are nodes that do not exist in the API server; `threshold` is how many
/// finished pods are kept, 0 for all.
pub(super) fn plan(
    pods: &[Cached<Pod>],
    nodes: &BTreeMap<&str, Node>,
    gone: &BTreeSet<Box<str>>,
    threshold: usize,
) -> Vec<Removal> {
    let is_deleted = |pod: &&Cached<Pod>| pod.meta().is_being_deleted();
    let out_of_service =
        |pod: &&Cached<Pod>| nodes.get(&*pod.node).is_some_and(|node| !node.ready && node.out_of_service);
    let orphaned = |pod: &&Cached<Pod>| gone.contains(&pod.node);
    let unscheduled = |pod: &&Cached<Pod>| pod.node.is_empty();

    let mut removals = Removals::default();
    removals.add(DeletionReason::Terminated, terminated(pods, threshold));
    removals.add(DeletionReason::OutOfService, pods.iter().filter(is_deleted).filter(out_of_service));
    removals.add(DeletionReason::Orphaned, pods.iter().filter(orphaned));
    removals.add(DeletionReason::Unscheduled, pods.iter().filter(is_deleted).filter(unscheduled));
    removals.list
}

#[derive(Default)]
struct Removals {
    list: Vec<Removal>,
    seen: BTreeSet<Key>,
}

impl Removals {
    fn add<'a>(&mut self, reason: DeletionReason, pods: impl IntoIterator<Item = &'a Cached<Pod>>) {
        for pod in pods {
            if self.seen.insert(pod.key().clone()) {
                self.list.push(Removal { pod: pod.clone(), reason });
            }
        }
    }
}

/// Returns the finished pods above the threshold: evicted ones first, then the oldest.
fn terminated(pods: &[Cached<Pod>], threshold: usize) -> Vec<&Cached<Pod>> {
    let mut ended: Vec<_> =
        pods.iter().filter(|pod| matches!(pod.phase, Phase::Succeeded | Phase::Failed)).collect();
    let excess = if threshold == 0 { 0 } else { ended.len().saturating_sub(threshold) };
    if excess > 0 {
        ended.sort_by_cached_key(|pod| {
            (Reverse(is_evicted(pod)), pod.meta().creation_timestamp, pod.key().name().to_owned())
        });
    }
    ended.truncate(excess);
    ended
}

/// Whether a pod was evicted. Read from the encoded pod, since it only matters above the threshold.
fn is_evicted(pod: &Cached<Pod>) -> bool {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Encoded {
        status: Status,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        reason: String,
    }
    pod.phase == Phase::Failed
        && pod.object().decode::<Encoded>().is_ok_and(|pod| pod.status.reason == "Evicted")
}
