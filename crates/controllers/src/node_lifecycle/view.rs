//! Typed views of nodes and leases.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use setpoint::Metadata;

use crate::workload::encoding::null_is_empty;

const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];
/// Nodes with this label are excluded from the zone's health.
const NOT_COUNTED: &str = "node.kubernetes.io/exclude-disruption";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) spec: NodeSpec,
    pub(super) status: NodeStatus,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) unschedulable: bool,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_added: Option<Timestamp>,
    /// Other fields (the value), kept as they are.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_heartbeat_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_transition_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    spec: LeaseSpec,
}

setpoint::view!(Lease of k8s_openapi::api::coordination::v1::Lease);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<Timestamp>,
}

impl Node {
    pub(super) fn condition(&self, r#type: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.r#type == r#type)
    }
}

impl Lease {
    pub(super) fn renewed(&self) -> Option<Timestamp> {
        self.spec.renew_time
    }
}

/// Returns the region and zone of a node. Nodes without labels share one zone.
pub(super) fn zone_of(node: &Metadata) -> String {
    let first =
        |names: [&str; 2]| names.iter().find_map(|name| node.label(name)).unwrap_or_default().to_owned();
    let (region, zone) = (first(REGION), first(ZONE));
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:{zone}") }
}

pub(super) fn counts_for_its_zone(node: &Metadata) -> bool {
    !node.labels.contains_key(NOT_COUNTED)
}
