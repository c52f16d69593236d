//! Typed view of a pod. It is cached with the pod and therefore small: fields that are needed once are decoded
//! elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::runtime::{Entrypoint, outcome};

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
#[serde(from = "Declared")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    /// `Always` on an init container makes it a sidecar.
    pub(crate) restart_policy: String,
    pub(crate) startup_probe: Option<Box<Probe>>,
    pub(crate) liveness_probe: Option<Box<Probe>>,
    pub(crate) readiness_probe: Option<Box<Probe>>,
    /// What is known about its program.
    pub(crate) entrypoint: Entrypoint,
    /// Whether its image must be on the node already.
    pub(crate) is_never_pulled: bool,
    /// How long its preStop hook takes, if known.
    pub(crate) stops_after: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Declared {
    name: String,
    image: String,
    restart_policy: String,
    startup_probe: Option<Box<Probe>>,
    liveness_probe: Option<Box<Probe>>,
    readiness_probe: Option<Box<Probe>>,
    command: Vec<String>,
    args: Vec<String>,
    image_pull_policy: Box<str>,
    lifecycle: Lifecycle,
    stdin: bool,
    tty: bool,
    ports: Vec<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Lifecycle {
    pre_stop: Hook,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hook {
    sleep: Sleep,
    exec: Option<Exec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sleep {
    seconds: u32,
}

impl Hook {
    fn takes(self) -> Duration {
        let run = self.exec.and_then(Exec::outcome).map_or(Duration::ZERO, |(takes, _)| takes);
        run.max(Duration::from_secs(self.sleep.seconds.into()))
    }
}

impl From<Declared> for Container {
    fn from(declared: Declared) -> Self {
        let Declared { name, image, restart_policy, startup_probe, liveness_probe, readiness_probe, .. } =
            declared;
        let is_interactive = declared.stdin && declared.tty;
        let entrypoint = Entrypoint::of(
            &image,
            &declared.command,
            &declared.args,
            is_interactive,
            !declared.ports.is_empty(),
        );
        let is_never_pulled = &*declared.image_pull_policy == "Never";
        let stops_after = declared.lifecycle.pre_stop.takes();
        Self {
            name,
            image,
            restart_policy,
            startup_probe,
            liveness_probe,
            readiness_probe,
            entrypoint,
            is_never_pulled,
            stops_after,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(from = "DeclaredProbe")]
pub(crate) struct Probe {
    pub(crate) initial_delay_seconds: u32,
    pub(crate) period_seconds: u32,
    pub(crate) failure_threshold: u32,
    pub(crate) success_threshold: u32,
    pub(crate) probe_type: ProbeType,
    /// Whether it runs a command that is known to fail.
    pub(crate) is_bound_to_fail: bool,
}

/// The type of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProbeType {
    #[default]
    Command,
    Http,
    Tcp,
    Grpc,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeclaredProbe {
    initial_delay_seconds: u32,
    period_seconds: u32,
    failure_threshold: u32,
    success_threshold: u32,
    exec: Option<Exec>,
    http_get: Option<IgnoredAny>,
    tcp_socket: Option<IgnoredAny>,
    grpc: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Exec {
    command: Vec<String>,
}

impl Exec {
    fn outcome(self) -> Option<(Duration, i32)> {
        outcome(&self.command)
    }
}

impl From<DeclaredProbe> for Probe {
    fn from(declared: DeclaredProbe) -> Self {
        let probe_type = match &declared {
            DeclaredProbe { http_get: Some(_), .. } => ProbeType::Http,
            DeclaredProbe { tcp_socket: Some(_), .. } => ProbeType::Tcp,
            DeclaredProbe { grpc: Some(_), .. } => ProbeType::Grpc,
            _ => ProbeType::Command,
        };
        Self {
            initial_delay_seconds: declared.initial_delay_seconds,
            period_seconds: declared.period_seconds,
            failure_threshold: declared.failure_threshold,
            success_threshold: declared.success_threshold,
            probe_type,
            is_bound_to_fail: declared.exec.and_then(Exec::outcome).is_some_and(|(_, code)| code != 0),
        }
    }
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
    pub(crate) message: Box<str>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

impl Status {
    /// Lists the statuses of the containers of all kinds.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let Self { init_container_statuses, container_statuses, ephemeral_container_statuses, .. } = self;
        init_container_statuses.iter().chain(container_statuses).chain(ephemeral_container_statuses)
    }
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
