//! Reads the input of a plan from the caches. No client.

use setpoint::object::DecodeError;
use setpoint::{Cached, Key, Lister};

use super::view::{Deployment, StrategyType};
use crate::replicaset::ReplicaSet;
use crate::workload::dependents::Dependents;
use crate::workload::pod::{Phase, Pod};

pub(super) struct Observer {
    pub(super) deployments: Lister<Deployment>,
    pub(super) sets: Dependents<ReplicaSet>,
    pub(super) pods: Dependents<Pod>,
}

/// The input of a plan, except the Deployment itself.
#[derive(Clone, Default)]
pub(super) struct Observed {
    /// The ReplicaSets that the Deployment controls, and the orphans of its namespace.
    pub(super) sets: Vec<Cached<ReplicaSet>>,
    /// The uids of ReplicaSets with pods that have not finished. Only used by Recreate.
    pub(super) busy: Vec<Box<str>>,
}

impl Observer {
    pub(super) fn deployment(&self, key: &Key) -> Result<Option<Cached<Deployment>>, DecodeError> {
        self.deployments.get(key)
    }

    pub(super) fn observe(&self, deployment: &Cached<Deployment>) -> Result<Observed, DecodeError> {
        let sets = self.sets.claimable_by(deployment.meta())?;
        let mut busy = Vec::new();
        if deployment.spec.strategy.r#type == StrategyType::Recreate {
            for set in &sets {
                if self.has_running_pods(deployment, set)? {
                    busy.push(set.meta().uid.clone());
                }
            }
        }
        Ok(Observed { sets, busy })
    }

    fn has_running_pods(
        &self,
        deployment: &Cached<Deployment>,
        set: &Cached<ReplicaSet>,
    ) -> Result<bool, DecodeError> {
        let pods = self.pods.controlled_by(&set.meta().uid)?;
        Ok(pods.iter().any(|pod| {
            let ended = matches!(pod.phase, Phase::Failed | Phase::Succeeded);
            !ended && deployment.spec.selector.matches(&pod.meta().labels)
        }))
    }
}
