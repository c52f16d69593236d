//! Plans what to do about a set. Pure.

use jiff::Timestamp;
use setpoint::Cached;
use setpoint::owner::{Claim, claim};

use super::Replicated;
use super::observe::{Observed, PodsPerNode};
use super::rank::pods_to_delete;
use crate::workload::pod::Pod;

/// The maximum number of pods created or deleted before the cache must show them.
pub(super) const BURST: usize = 500;

/// The actions, in order, and the resulting pods of the set.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    /// The active pods of the set, including those to adopt and to delete.
    pub(super) pods: Vec<Cached<Pod>>,
}

pub(super) enum Action {
    /// Adopt an orphan. The first adoption of a plan reads the owner uncached: a cached owner may have been deleted,
    /// and then its orphans must stay orphans.
    Adopt { pod: Cached<Pod>, recheck_owner: bool },
    /// Release a pod that the selector no longer matches.
    Release { pod: Cached<Pod> },
    /// Create pods from the template.
    Create { count: usize },
    /// Delete these pods.
    Delete { pods: Vec<Cached<Pod>> },
}

pub(super) fn plan<R: Replicated>(set: &Cached<R>, observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    plan.claim_pods(set, &observed.pods);
    if observed.caught_up && !set.meta().is_being_deleted() {
        plan.scale(set.spec().wanted(), observed, now);
    }
    plan
}

impl Plan {
    fn claim_pods<R: Replicated>(&mut self, set: &Cached<R>, pods: &[Cached<Pod>]) {
        let mut recheck_owner = true;
        for pod in pods {
            match claim(set.meta(), set.selector(), pod.meta()) {
                Claim::Owned => self.pods.push(pod.clone()),
                Claim::Adopt => {
                    self.actions.push(Action::Adopt { pod: pod.clone(), recheck_owner });
                    self.pods.push(pod.clone());
                    recheck_owner = false;
                }
                Claim::Release => self.actions.push(Action::Release { pod: pod.clone() }),
                Claim::Foreign => {}
            }
        }
    }

    fn scale(&mut self, wanted: usize, observed: &Observed, now: Timestamp) {
        let have = self.pods.len();
        if have < wanted {
            self.actions.push(Action::Create { count: (wanted - have).min(BURST) });
        } else if have > wanted {
            let count = (have - wanted).min(BURST);
            let pods =
                pods_to_delete(&self.pods, count, &self.pods_per_node(observed), observed.by_cost, now);
            self.actions.push(Action::Delete { pods });
        }
    }

    /// Counts pods per node, of the set (including adopted ones) and of its siblings.
    fn pods_per_node(&self, observed: &Observed) -> PodsPerNode {
        let mut pods_per_node = observed.sibling_pods_per_node.clone();
        for pod in &self.pods {
            *pods_per_node.entry(pod.node.clone()).or_default() += 1;
        }
        pods_per_node
    }
}
