//! Applications as users write them, and their status.
//!
//! Decoding is lenient, because the schema has already been validated. Encoding omits empty fields.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The spec of an Application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Spec {
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(crate) components: Vec<Component>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) policies: Vec<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<Workflow>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Component {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) properties: Value,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) traits: Vec<Trait>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<String>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<Input>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) outputs: Vec<Output>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) replica_key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Trait {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) properties: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Input {
    pub(crate) from: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) parameter_key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) value_from: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Policy {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) properties: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Workflow {
    #[serde(rename = "ref", skip_serializing_if = "String::is_empty")]
    pub(crate) reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Mode {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) steps: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) sub_steps: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) properties: Value,
    #[serde(rename = "if", skip_serializing_if = "String::is_empty")]
    pub(crate) condition: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) timeout: String,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<String>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<Input>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) outputs: Vec<Output>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) sub_steps: Vec<Step>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) mode: String,
}

/// The status of an Application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) status: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) observed_generation: i64,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<Service>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<WorkflowStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latest_revision: Option<RevisionRef>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) applied_resources: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    pub(crate) last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RevisionRef {
    pub(crate) name: String,
    pub(crate) revision: i64,
    pub(crate) revision_hash: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Service {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workload_definition: Option<Value>,
    pub(crate) healthy: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) details: serde_json::Map<String, Value>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) traits: Vec<TraitHealth>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TraitHealth {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) healthy: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) details: serde_json::Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WorkflowStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) app_revision: String,
    pub(crate) mode: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    pub(crate) suspend: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) suspend_state: String,
    pub(crate) terminated: bool,
    pub(crate) finished: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_backend: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_time: Option<Timestamp>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<StepStatus>,
}

/// The status of a step, or of a step in a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StepStatus {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    pub(crate) phase: Phase,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_execute_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_execute_time: Option<Timestamp>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) sub_steps: Vec<StepStatus>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Skipped,
    Suspending,
}

impl Phase {
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped)
    }
}

/// The maximum length of a message in a status or an event, in bytes: that of Kubernetes' own events.
const MAX_MESSAGE: usize = 1_024;

/// Truncates a message that is too long.
pub(crate) fn bounded(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let mark = '…';
        let mut end = MAX_MESSAGE - mark.len_utf8();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push(mark);
    }
    message
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
