//! Typed view of a Deployment.

use serde::{Deserialize, Serialize};
use setpoint::LabelSelector;

use crate::workload::amount::Amount;
use crate::workload::condition::Condition;
use crate::workload::encoding::{Annotated, is_zero, one};
use crate::workload::owners::Owner;
use crate::workload::template::PodTemplate;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Deployment {
    #[serde(default)]
    pub(super) metadata: Annotated,
    pub(super) spec: DeploymentSpec,
    #[serde(default)]
    pub(super) status: DeploymentStatus,
}

setpoint::view!(Deployment of k8s_openapi::api::apps::v1::Deployment);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeploymentSpec {
    #[serde(default = "one")]
    pub(super) replicas: i32,
    pub(super) selector: LabelSelector,
    pub(super) template: PodTemplate,
    #[serde(default)]
    pub(super) strategy: Strategy,
    #[serde(default)]
    pub(super) min_ready_seconds: i32,
    #[serde(default)]
    pub(super) revision_history_limit: Option<i32>,
    #[serde(default)]
    pub(super) paused: bool,
    #[serde(default)]
    progress_deadline_seconds: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Strategy {
    pub(super) r#type: StrategyType,
    pub(super) rolling_update: RollingUpdate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum StrategyType {
    #[default]
    RollingUpdate,
    Recreate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RollingUpdate {
    pub(super) max_surge: Option<Amount>,
    pub(super) max_unavailable: Option<Amount>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeploymentStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) updated_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) available_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) unavailable_replicas: i32,
    /// Terminating pods, if the ReplicaSets report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) collision_count: Option<i32>,
}

impl DeploymentSpec {
    /// The progress deadline in seconds. `None` if it is the maximum value, which disables it.
    pub(super) fn progress_deadline(&self) -> Option<i32> {
        self.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
    }

    /// The number of old ReplicaSets to keep. `None` if it is the maximum value, which means all.
    pub(super) fn history_limit(&self) -> Option<usize> {
        let limit = self.revision_history_limit.filter(|limit| *limit != i32::MAX)?;
        Some(usize::try_from(limit).unwrap_or(0))
    }
}

impl Owner for Deployment {
    fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}
