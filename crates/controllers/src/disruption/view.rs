//! Typed views of budgets, pods and their owners.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use setpoint::{LabelSelector, Labels};

use crate::workload::amount::Amount;
use crate::workload::encoding::{is_zero, null_is_empty};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Budget {
    pub(super) spec: BudgetSpec,
    pub(super) status: BudgetStatus,
}

setpoint::view!(Budget of k8s_openapi::api::policy::v1::PodDisruptionBudget);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BudgetSpec {
    pub(super) min_available: Option<Amount>,
    pub(super) max_unavailable: Option<Amount>,
    /// `None` selects no pods, an empty selector all.
    pub(super) selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BudgetStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) observed_generation: i64,
    /// Pods whose eviction was granted, and when.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub(super) disrupted_pods: BTreeMap<String, Timestamp>,
    pub(super) disruptions_allowed: i32,
    pub(super) current_healthy: i32,
    pub(super) desired_healthy: i32,
    pub(super) expected_pods: i32,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) observed_generation: i64,
    pub(super) last_transition_time: Option<Timestamp>,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Budget {
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.spec.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// The pod fields that budgets depend on, extracted while decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) ready: bool,
    /// When its disruption condition became true, unless only the kubelet may remove it.
    pub(super) disrupted: Option<Timestamp>,
}

setpoint::view!(Target of k8s_openapi::api::core::v1::Pod);

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default, bound(deserialize = "'de: 'a"))]
        struct Encoded<'a> {
            #[serde(borrow)]
            status: Status<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status<'a> {
            #[serde(borrow)]
            phase: Cow<'a, str>,
            #[serde(borrow)]
            conditions: Option<Vec<PodCondition<'a>>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct PodCondition<'a> {
            #[serde(borrow)]
            r#type: Cow<'a, str>,
            #[serde(borrow)]
            status: Cow<'a, str>,
            #[serde(borrow)]
            reason: Cow<'a, str>,
            last_transition_time: Option<Timestamp>,
        }
        let Encoded { status } = Encoded::deserialize(deserializer)?;
        let conditions = status.conditions.unwrap_or_default();
        let truly = |r#type: &str| {
            conditions.iter().find(|condition| condition.r#type == r#type && condition.status == "True")
        };
        let ended = matches!(&*status.phase, "Succeeded" | "Failed");
        let disrupted = truly("DisruptionTarget")
            .filter(|condition| !ended && condition.reason != "TerminationByKubelet");
        Ok(Self {
            ready: truly("Ready").is_some(),
            disrupted: disrupted
                .map(|condition| condition.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH)),
        })
    }
}

/// The scale of an owner of pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Scalable {
    spec: ScalableSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ScalableSpec {
    replicas: Option<i32>,
}

impl Scalable {
    pub(super) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }
}
