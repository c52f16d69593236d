//! Typed views of pods, nodes and the other objects that the scheduler reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use setpoint::{Cached, LabelSelector};
use setpoint_placement::{NodeAffinity, Port, Requests, Resources, Taint, Toleration};

use crate::devices::{PodClaim, PodClaimStatus};

/// A pod as the scheduler sees it.
pub(crate) type Pod = Cached<PodView>;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodView {
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

setpoint::view!(PodView of k8s_openapi::api::core::v1::Pod);

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) scheduler_name: String,
    pub(crate) scheduling_gates: Vec<serde::de::IgnoredAny>,
    pub(crate) priority: i32,
    pub(crate) preemption_policy: String,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) affinity: Affinity,
    pub(crate) topology_spread_constraints: Vec<SpreadConstraint>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) containers: Vec<Container>,
    pub(crate) init_containers: Vec<Container>,
    pub(crate) overhead: Requests,
    /// Pod-level resources.
    pub(crate) resources: Requirements,
    pub(crate) resource_claims: Vec<PodClaim>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: Box<str>,
    pub(crate) image: String,
    pub(crate) resources: Requirements,
    pub(crate) ports: Vec<Port>,
    /// `Always` on an init container makes it a sidecar.
    pub(crate) restart_policy: String,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Requirements {
    pub(crate) requests: Requests,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    pub(crate) node_affinity: NodeAffinity,
    pub(crate) pod_affinity: PodAffinity,
    pub(crate) pod_anti_affinity: PodAffinity,
}

/// Inter-pod affinity or anti-affinity.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Vec<PodAffinityTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) preferred: Vec<WeightedTerm>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WeightedTerm {
    pub(crate) weight: i64,
    pub(crate) pod_affinity_term: PodAffinityTerm,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodAffinityTerm {
    pub(crate) label_selector: Option<LabelSelector>,
    pub(crate) namespaces: Vec<Box<str>>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) topology_key: Box<str>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpreadConstraint {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: Box<str>,
    pub(crate) when_unsatisfiable: Box<str>,
    pub(crate) label_selector: Option<LabelSelector>,
    pub(crate) min_domains: Option<usize>,
    pub(crate) node_affinity_policy: Option<Box<str>>,
    pub(crate) node_taints_policy: Option<Box<str>>,
    pub(crate) match_label_keys: Vec<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) nominated_node_name: String,
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) resource_claim_statuses: Vec<PodClaimStatus>,
    pub(crate) container_statuses: Resized,
    pub(crate) init_container_statuses: Resized,
}

/// Condition of a pod with a resize that is not yet granted.
pub(crate) const RESIZE_PENDING: &str = "PodResizePending";

/// Containers with resources in their status. Most nodes only report them for resized containers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Resized(pub(crate) Vec<ResizedContainer>);

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResizedContainer {
    pub(crate) name: Box<str>,
    pub(crate) resources: Option<Requirements>,
    pub(crate) allocated_resources: Requests,
}

impl<'de> Deserialize<'de> for Resized {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = Vec::<ResizedContainer>::deserialize(deserializer)?;
        all.retain(|container| container.resources.is_some());
        all.shrink_to_fit();
        Ok(Self(all))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) condition_type: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeView {
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

setpoint::view!(NodeView of k8s_openapi::api::core::v1::Node);

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub(crate) allocatable: Resources,
    pub(crate) images: Vec<Image>,
}

/// An image on a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Image {
    pub(crate) names: Vec<String>,
    pub(crate) size_bytes: i64,
}

/// A namespace. Only its labels are used, and they are in the metadata.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NamespaceView {}

setpoint::view!(NamespaceView of k8s_openapi::api::core::v1::Namespace);

/// A Service, for its selector.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceView {
    pub(crate) spec: ServiceSpec,
}

setpoint::view!(ServiceView of k8s_openapi::api::core::v1::Service);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceSpec {
    pub(crate) selector: Option<setpoint::Labels>,
}

/// A controller with replicas, for its selector.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSetView {
    pub(crate) spec: Selecting,
}

setpoint::view!(ReplicaSetView of k8s_openapi::api::apps::v1::ReplicaSet);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatefulSetView {
    pub(crate) spec: Selecting,
}

setpoint::view!(StatefulSetView of k8s_openapi::api::apps::v1::StatefulSet);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Selecting {
    pub(crate) selector: LabelSelector,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicationControllerView {
    pub(crate) spec: SelectingByLabels,
}

setpoint::view!(ReplicationControllerView of k8s_openapi::api::core::v1::ReplicationController);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SelectingByLabels {
    pub(crate) selector: setpoint::Labels,
}

/// A PodDisruptionBudget.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BudgetView {
    pub(crate) spec: BudgetSpec,
    pub(crate) status: BudgetStatus,
}

setpoint::view!(BudgetView of k8s_openapi::api::policy::v1::PodDisruptionBudget);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BudgetSpec {
    pub(crate) selector: Option<LabelSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetStatus {
    pub(crate) disruptions_allowed: i32,
    pub(crate) disrupted_pods: BTreeMap<String, serde::de::IgnoredAny>,
}

impl PodView {
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether this scheduler should schedule the pod now.
    pub(crate) fn awaits_scheduling(&self) -> bool {
        let ours = matches!(self.spec.scheduler_name.as_str(), "" | "default-scheduler");
        ours && self.spec.node_name.is_empty() && self.spec.scheduling_gates.is_empty() && !self.is_finished()
    }

    /// The nominated node of an unscheduled pod.
    pub(crate) fn nominated_node(&self) -> Option<&str> {
        let pending = self.spec.node_name.is_empty() && !self.status.nominated_node_name.is_empty();
        pending.then_some(&self.status.nominated_node_name)
    }
}

impl PodSpec {
    /// Whether the pod has inter-pod affinity or anti-affinity.
    pub(crate) fn is_affine(&self) -> bool {
        let Affinity { pod_affinity: affinity, pod_anti_affinity: anti_affinity, .. } = &self.affinity;
        [affinity, anti_affinity]
            .iter()
            .any(|terms| !terms.required.is_empty() || !terms.preferred.is_empty())
    }

    /// The pod's host ports.
    pub(crate) fn host_ports(&self) -> impl Iterator<Item = &Port> {
        let sidecars = self.init_containers.iter().filter(|container| container.restart_policy == "Always");
        let ports = sidecars.chain(&self.containers).flat_map(|container| &container.ports);
        ports.filter(|port| port.host_port != 0)
    }
}
