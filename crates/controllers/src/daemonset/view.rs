//! Typed views of DaemonSets, their nodes and pods.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use setpoint::{Cached, LabelSelector};
use setpoint_placement::{NodeAffinity, NodeSelector, Taint, Toleration};

use crate::workload::amount::{Amount, Rounded};
use crate::workload::condition::Condition;
use crate::workload::encoding::{Annotated, is_zero, null_is_empty, seconds, ten};
use crate::workload::owners::Owner;
use crate::workload::pod::Pod;
use crate::workload::template::PodTemplate;
use crate::workload::update_strategy::UpdateStrategy;

/// The deprecated annotation with the template generation, copied to pods for old clients.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

#[derive(Clone, Debug, Deserialize)]
pub(super) struct DaemonSet {
    #[serde(default)]
    pub(super) metadata: Annotated,
    pub(super) spec: DaemonSetSpec,
    #[serde(default)]
    pub(super) status: DaemonSetStatus,
}

setpoint::view!(DaemonSet of k8s_openapi::api::apps::v1::DaemonSet);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaemonSetSpec {
    pub(super) selector: LabelSelector,
    pub(super) template: PodTemplate,
    #[serde(default)]
    pub(super) update_strategy: UpdateStrategy<RollingUpdate>,
    #[serde(default)]
    min_ready_seconds: i32,
    #[serde(default = "ten")]
    pub(super) revision_history_limit: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RollingUpdate {
    max_unavailable: Option<Amount>,
    max_surge: Option<Amount>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DaemonSetStatus {
    pub(super) current_number_scheduled: i32,
    pub(super) number_misscheduled: i32,
    pub(super) desired_number_scheduled: i32,
    pub(super) number_ready: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) updated_number_scheduled: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) number_available: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) number_unavailable: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) collision_count: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<Condition>,
}

impl Owner for DaemonSet {
    fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}

impl DaemonSet {
    /// Returns the template generation, if the annotation is present.
    pub(super) fn template_generation(&self) -> Option<i64> {
        self.metadata.annotations.get(TEMPLATE_GENERATION)?.parse().ok()
    }
}

impl DaemonSetSpec {
    /// How long a pod must be ready to be available.
    pub(super) fn min_ready(&self) -> Duration {
        seconds(self.min_ready_seconds)
    }

    fn rolling(&self) -> Option<&RollingUpdate> {
        self.update_strategy.rolling_update.as_ref().filter(|_| self.update_strategy.is_rolling())
    }

    /// Returns how many of `nodes` may have a surge pod.
    pub(super) fn max_surge(&self, nodes: i32) -> usize {
        let amount = self.rolling().and_then(|rolling| rolling.max_surge.as_ref());
        usize::try_from(amount.map_or(0, |amount| amount.of(nodes, Rounded::Up))).unwrap_or(0)
    }

    /// Returns how many of `nodes` may have no available pod.
    pub(super) fn max_unavailable(&self, nodes: i32) -> usize {
        let amount = self.rolling().and_then(|rolling| rolling.max_unavailable.as_ref());
        usize::try_from(amount.map_or(0, |amount| amount.of(nodes, Rounded::Up))).unwrap_or(0)
    }

    /// Whether a node may temporarily have two pods.
    pub(super) fn allows_surge(&self) -> bool {
        self.max_surge(1) > 0
    }
}

/// A node's taints. Its labels are in the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) spec: NodeSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) taints: Vec<Taint>,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

/// The placement fields of a pod spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PlacementSpec {
    pub(super) node_name: Box<str>,
    pub(super) node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    pub(super) tolerations: Option<Vec<Toleration>>,
    pub(super) host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

impl PlacementSpec {
    /// Reads the fields from a template.
    pub(super) fn of(template: &PodTemplate) -> Self {
        serde_json::from_str(template.spec.get()).unwrap_or_default()
    }

    /// Returns the required node affinity.
    pub(super) fn required(&self) -> Option<&NodeSelector> {
        self.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()
    }

    /// Returns the single node that the affinity names.
    fn only_node(&self) -> Option<&str> {
        let named = self.required()?.named_nodes()?;
        named.first().copied().filter(|_| named.len() == 1)
    }
}

/// The affinity of a pod that is not on its node yet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Target {
    spec: PlacementSpec,
}

setpoint::view!(Target of k8s_openapi::api::core::v1::Pod);

/// Returns the node that a pod runs on or targets.
pub(super) fn target_node(pod: &Cached<Pod>) -> Option<Box<str>> {
    if !pod.node.is_empty() {
        return Some(pod.node.clone());
    }
    pod.object().view::<Target>().ok()?.spec.only_node().map(Into::into)
}
