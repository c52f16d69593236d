//! What the caches say about a set. No client.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::object::DecodeError;
use setpoint::{Cached, Expectations, Key, Lister};

use super::ReplicaSet;
use crate::workload::dependents::Dependents;
use crate::workload::pod::{Pod, is_active};

pub(super) struct Observer {
    pub(super) listed: Lister<ReplicaSet>,
    pub(super) sets: Dependents<ReplicaSet>,
    pub(super) pods: Dependents<Pod>,
    pub(super) expectations: Arc<Expectations<Key>>,
}

/// Everything a plan depends on, but for the set itself and the time.
#[derive(Clone)]
pub(super) struct Observed {
    /// The active pods that the set controls, and the active orphans of its namespace.
    pub(super) pods: Vec<Cached<Pod>>,
    /// How many active pods of the set and of its siblings are on each node. Nobody asks unless some
    /// pods have to go, so it is empty until then.
    pub(super) crowds: BTreeMap<Box<str>, usize>,
    /// Whether the cache shows all that was created and deleted for this set.
    pub(super) caught_up: bool,
}

impl Observer {
    pub(super) fn set(&self, key: &Key) -> Result<Option<Cached<ReplicaSet>>, DecodeError> {
        self.listed.get(key)
    }

    pub(super) fn observe(&self, set: &Cached<ReplicaSet>) -> Result<Observed, DecodeError> {
        // Asked before the pods are listed: what is observed after the list must not count for it.
        let caught_up = self.expectations.satisfied(set.key());
        let mut pods = self.pods.claimable_by(set.meta())?;
        pods.retain(is_active);
        let crowds = if pods.len() > set.spec.wanted() { self.crowds(set)? } else { BTreeMap::new() };
        Ok(Observed { pods, crowds, caught_up })
    }

    /// Counts, by node, the active pods of all sets that have the same owner as this one. A set of its
    /// own has no siblings and no crowds.
    fn crowds(&self, set: &Cached<ReplicaSet>) -> Result<BTreeMap<Box<str>, usize>, DecodeError> {
        let mut crowds = BTreeMap::new();
        let Some(owner) = set.meta().controller() else { return Ok(crowds) };
        for sibling in self.sets.controlled_by(&owner.uid)? {
            for pod in self.pods.controlled_by(&sibling.meta().uid)?.iter().filter(|pod| is_active(pod)) {
                *crowds.entry(pod.node.clone()).or_default() += 1;
            }
        }
        Ok(crowds)
    }
}
