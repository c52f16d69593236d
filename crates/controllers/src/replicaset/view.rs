//! Typed view of a ReplicaSet.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use setpoint::LabelSelector;

use crate::workload::condition::Condition;
use crate::workload::encoding::{Annotated, is_zero, one, seconds};
use crate::workload::owners::Owner;
use crate::workload::template::PodTemplate;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ReplicaSet {
    #[serde(default)]
    pub(crate) metadata: Annotated,
    pub(crate) spec: ReplicaSetSpec,
    #[serde(default)]
    pub(crate) status: ReplicaSetStatus,
}

setpoint::view!(ReplicaSet of k8s_openapi::api::apps::v1::ReplicaSet);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplicaSetSpec {
    #[serde(default = "one")]
    pub(crate) replicas: i32,
    #[serde(default)]
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: LabelSelector,
    pub(crate) template: PodTemplate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetStatus {
    pub(crate) replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) fully_labeled_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) available_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) observed_generation: i64,
    /// Terminating pods, if the feature gate is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
}

impl Owner for ReplicaSet {
    fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}

/// A kind that keeps a number of pods of a template: ReplicaSet or ReplicationController.
pub(crate) trait Replicated: Owner {
    fn spec(&self) -> &ReplicaSetSpec;
    fn status(&self) -> &ReplicaSetStatus;
}

impl Replicated for ReplicaSet {
    fn spec(&self) -> &ReplicaSetSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaSetStatus {
        &self.status
    }
}

/// The condition for failed creates or deletes of pods.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

impl ReplicaSetSpec {
    /// The desired number of pods.
    pub(crate) fn wanted(&self) -> usize {
        usize::try_from(self.replicas).unwrap_or(0)
    }

    /// How long a pod must be ready to be available.
    pub(crate) fn min_ready(&self) -> Duration {
        seconds(self.min_ready_seconds)
    }
}
