//! Reads the input of a plan from the caches. No client.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::object::DecodeError;
use setpoint::{Cached, Expectations, Key, Lister};

use super::Replicated;
use crate::workload::dependents::Dependents;
use crate::workload::pod::{Pod, is_active};

pub(super) struct Observer<R> {
    pub(super) listed: Lister<R>,
    pub(super) sets: Dependents<R>,
    pub(super) pods: Dependents<Pod>,
    pub(super) expectations: Arc<Expectations<Key>>,
    /// Whether terminating pods are counted.
    pub(super) counts_terminating: bool,
    /// Whether the pod deletion cost is used.
    pub(super) by_cost: bool,
}

/// The number of pods per node.
pub(super) type PodsPerNode = BTreeMap<Box<str>, usize>;

/// The input of a plan, except the set and the time.
#[derive(Clone)]
pub(super) struct Observed {
    /// The active pods that the set controls, and the active orphans of its namespace.
    pub(super) pods: Vec<Cached<Pod>>,
    /// Active pods per node of sibling sets, i.e. those with the same owner. Only needed, and filled, if pods have to
    /// be deleted.
    pub(super) sibling_pods_per_node: PodsPerNode,
    /// Whether the cache shows all earlier creates and deletes of this set.
    pub(super) caught_up: bool,
    /// The number of terminating pods, if they are counted.
    pub(super) terminating: Option<i32>,
    /// Whether the pod deletion cost is used.
    pub(super) by_cost: bool,
}

impl<R: Replicated> Observer<R> {
    pub(super) fn set(&self, key: &Key) -> Result<Option<Cached<R>>, DecodeError> {
        self.listed.get(key)
    }

    pub(super) fn observe(&self, set: &Cached<R>) -> Result<Observed, DecodeError> {
        // Check this before listing pods: events observed after the list must not count for it.
        let caught_up = self.expectations.satisfied(set.key());
        let mut pods = self.pods.claimable_by(set.meta())?;
        let terminating = self.counts_terminating.then(|| terminating(set, &pods));
        pods.retain(is_active);
        let sibling_pods_per_node = if pods.len() > set.spec().wanted() {
            self.sibling_pods_per_node(set)?
        } else {
            PodsPerNode::new()
        };
        Ok(Observed { pods, sibling_pods_per_node, caught_up, terminating, by_cost: self.by_cost })
    }

    fn sibling_pods_per_node(&self, set: &Cached<R>) -> Result<PodsPerNode, DecodeError> {
        let mut pods_per_node = PodsPerNode::new();
        let Some(owner) = set.meta().controller() else { return Ok(pods_per_node) };
        for sibling in self.sets.controlled_by(&owner.uid)? {
            if sibling.meta().uid == set.meta().uid {
                continue;
            }
            for pod in self.pods.controlled_by(&sibling.meta().uid)?.iter().filter(|pod| is_active(pod)) {
                *pods_per_node.entry(pod.node.clone()).or_default() += 1;
            }
        }
        Ok(pods_per_node)
    }
}

/// Counts terminating pods that a set controls and selects.
fn terminating<R: Replicated>(set: &Cached<R>, pods: &[Cached<Pod>]) -> i32 {
    let goes = |pod: &&Cached<Pod>| {
        let meta = pod.meta();
        meta.is_being_deleted()
            && !pod.phase.has_ended()
            && meta.controller().is_some_and(|owner| owner.uid == set.meta().uid)
            && set.spec().selector.matches(&meta.labels)
    };
    i32::try_from(pods.iter().filter(goes).count()).unwrap_or(i32::MAX)
}
