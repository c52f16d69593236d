//! Decodes a ReplicationController as a ReplicaSet.

use serde::Deserialize;
use setpoint::{LabelSelector, Labels};

use crate::replicaset::{ReplicaSetSpec, ReplicaSetStatus, Replicated};
use crate::workload::encoding::one;
use crate::workload::owners::Owner;
use crate::workload::template::PodTemplate;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReplicationController {
    #[serde(deserialize_with = "with_label_selector")]
    spec: ReplicaSetSpec,
    #[serde(default)]
    status: ReplicaSetStatus,
}

setpoint::view!(ReplicationController of k8s_openapi::api::core::v1::ReplicationController);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Encoded {
    #[serde(default = "one")]
    replicas: i32,
    #[serde(default)]
    min_ready_seconds: i32,
    #[serde(default)]
    selector: Labels,
    template: PodTemplate,
}

fn with_label_selector<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<ReplicaSetSpec, D::Error> {
    let Encoded { replicas, min_ready_seconds, selector, template } = Encoded::deserialize(deserializer)?;
    let selector = LabelSelector { match_labels: selector, ..LabelSelector::default() };
    Ok(ReplicaSetSpec { replicas, min_ready_seconds, selector, template })
}

impl Owner for ReplicationController {
    fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}

impl Replicated for ReplicationController {
    fn spec(&self) -> &ReplicaSetSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaSetStatus {
        &self.status
    }
}
