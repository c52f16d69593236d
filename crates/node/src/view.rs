//! What a node reads of a pod. Kept with the pod, so it is small: what is needed once is read once, elsewhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodView {
    pub(crate) metadata: Annotated,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

setpoint::view!(PodView of k8s_openapi::api::core::v1::Pod);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotated {
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub(crate) node_name: String,
    pub(crate) restart_policy: String,
    pub(crate) active_deadline_seconds: Option<u64>,
    pub(crate) host_network: bool,
    pub(crate) containers: Vec<Container>,
    pub(crate) init_containers: Vec<Container>,
    pub(crate) ephemeral_containers: Vec<Container>,
    pub(crate) readiness_gates: Vec<ReadinessGate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    /// `Always` on an init container makes it a sidecar.
    pub(crate) restart_policy: String,
    pub(crate) startup_probe: Option<Probe>,
    pub(crate) readiness_probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Probe {
    pub(crate) initial_delay_seconds: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReadinessGate {
    pub(crate) condition_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) phase: String,
    pub(crate) observed_generation: i64,
    pub(crate) start_time: Option<Timestamp>,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<String>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
    pub(crate) ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) condition_type: String,
    pub(crate) status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) restart_count: u32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    pub(crate) state: State,
    pub(crate) last_state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) running: Option<Running>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) terminated: Option<Box<Terminated>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Running {
    pub(crate) started_at: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waiting {
    pub(crate) reason: Box<str>,
    pub(crate) message: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

impl PodView {
    pub(crate) fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.condition_type == condition_type)
    }

    pub(crate) fn is_true(&self, condition_type: &str) -> bool {
        self.condition(condition_type).is_some_and(|condition| condition.status == "True")
    }
}

impl Container {
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}
