//! Typed views of autoscalers and pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use setpoint::LabelSelector;
use setpoint_quantity::Quantity;

use crate::workload::condition::Condition;
use crate::workload::encoding::{is_zero, null_is_empty};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Hpa {
    pub(super) spec: HpaSpec,
    pub(super) status: HpaStatus,
}

setpoint::view!(Hpa of k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HpaSpec {
    pub(super) scale_target_ref: ObjectRef,
    pub(super) min_replicas: Option<i32>,
    pub(super) max_replicas: i32,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) metrics: Vec<MetricSpec>,
    pub(super) behavior: Option<Behavior>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectRef {
    pub(super) kind: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
}

impl ObjectRef {
    pub(super) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// A metric. The field matching its type has the details.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetricSpec {
    pub(super) r#type: String,
    pub(super) object: Source,
    pub(super) pods: Source,
    pub(super) resource: Source,
    pub(super) container_resource: Source,
    pub(super) external: Source,
}

/// The metric and its target. Each metric type uses some of these fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Source {
    /// The resource, such as `cpu`.
    pub(super) name: String,
    pub(super) container: String,
    pub(super) described_object: ObjectRef,
    pub(super) metric: MetricId,
    pub(super) target: Target,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct MetricId {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Target {
    pub(super) r#type: String,
    #[serde(deserialize_with = "milli")]
    pub(super) value: Option<i64>,
    #[serde(deserialize_with = "milli")]
    pub(super) average_value: Option<i64>,
    pub(super) average_utilization: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Behavior {
    pub(super) scale_up: Rules,
    pub(super) scale_down: Rules,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rules {
    pub(super) stabilization_window_seconds: Option<i32>,
    pub(super) select_policy: Option<String>,
    pub(super) policies: Option<Vec<Policy>>,
    #[serde(deserialize_with = "fraction")]
    pub(super) tolerance: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Policy {
    pub(super) r#type: String,
    pub(super) value: i32,
    pub(super) period_seconds: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HpaStatus {
    #[serde(skip_serializing_if = "is_zero")]
    observed_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_scale_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) current_replicas: i32,
    pub(super) desired_replicas: i32,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) current_metrics: Vec<Value>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) conditions: Vec<Condition>,
}

/// Decodes a quantity in thousandths.
fn milli<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let encoded = Option::<Value>::deserialize(deserializer)?;
    let read = |amount: &Value| Quantity::of(amount).map(|amount| amount.milli_value());
    encoded.as_ref().map(read).transpose().map_err(serde::de::Error::custom)
}

/// Decodes a quantity as an approximate fraction.
fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let encoded = Option::<Value>::deserialize(deserializer)?;
    let read = |amount: &Value| Quantity::of(amount).map(|amount| amount.milli_value() as f64 / 1000.0);
    encoded.as_ref().map(read).transpose().map_err(serde::de::Error::custom)
}

/// The pod fields that autoscaling uses. Decoded again for each evaluation.
#[derive(Clone, Debug, Default)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) phase: String,
    pub(super) is_being_deleted: bool,
    pub(super) started: Option<Timestamp>,
    /// The status of the Ready condition, and since when.
    pub(super) ready: Option<(String, Option<Timestamp>)>,
    /// The requests of each container and sidecar.
    pub(super) containers: Vec<(String, BTreeMap<String, i64>)>,
    /// Pod-level requests.
    pub(super) requests: BTreeMap<String, i64>,
}

impl Replica {
    pub(super) fn of(pod: &setpoint::Object) -> Result<Self, setpoint::object::DecodeError> {
        let Encoded { spec, status } = pod.decode()?;
        let ready = status.conditions.into_iter().find(|condition| condition.r#type == "Ready");
        let beside = spec.init_containers.into_iter();
        let beside = beside.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let containers = spec.containers.into_iter().chain(beside);
        Ok(Self {
            name: pod.meta().name.to_string(),
            phase: status.phase,
            is_being_deleted: pod.meta().is_being_deleted(),
            started: status.start_time,
            ready: ready.map(|ready| (ready.status, ready.last_transition_time)),
            containers: containers.map(|one| (one.name, amounts(&one.resources.requests))).collect(),
            requests: amounts(&spec.resources.requests),
        })
    }
}

fn amounts(requests: &BTreeMap<String, Value>) -> BTreeMap<String, i64> {
    let amount =
        |(name, amount): (&String, &Value)| Some((name.clone(), Quantity::of(amount).ok()?.milli_value()));
    requests.iter().filter_map(amount).collect()
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Encoded {
    spec: EncodedSpec,
    status: EncodedStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EncodedSpec {
    #[serde(deserialize_with = "null_is_empty")]
    containers: Vec<EncodedContainer>,
    #[serde(deserialize_with = "null_is_empty")]
    init_containers: Vec<EncodedContainer>,
    #[serde(deserialize_with = "null_is_empty")]
    resources: EncodedResources,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EncodedContainer {
    name: String,
    restart_policy: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    resources: EncodedResources,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EncodedResources {
    #[serde(deserialize_with = "null_is_empty")]
    requests: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EncodedStatus {
    phase: String,
    start_time: Option<Timestamp>,
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Vec<Condition>,
}
