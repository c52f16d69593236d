//! Resource usage of pods and nodes for the metrics API. Pure.
//!
//! Nothing is measured. Usage comes from annotations; by default it is that of an idle process: a tenth of the
//! requested CPU and half of the requested memory. It depends on the object alone, so a new annotation takes effect at
//! once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::conditions::whole_seconds;
use setpoint_quantity::Quantity;

use crate::behaviour::annotation::{CPU_USAGE, MEMORY_USAGE};

/// The default without requests, in millicores and bytes.
const IDLE: Usage = Usage { milli_cpu: 1, memory: 16 << 20 };

/// The usage of a node itself.
const NODE_ITSELF: Usage = Usage { milli_cpu: 100, memory: 512 << 20 };

/// The container runtime of simulated nodes.
pub(crate) const RUNTIME: &str = "setpoint://";

/// The reported measurement window.
const WINDOW: &str = "15s";

/// CPU in millicores, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    milli_cpu: i64,
    memory: i64,
}

/// The usage of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub node: String,
    pub total: Usage,
    /// In the format of the metrics API.
    pub metrics: Value,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }
}

impl Usage {
    /// The usage of a node without pods.
    pub(crate) const NODE: Self = NODE_ITSELF;

    pub(crate) fn nano_cores(self) -> u64 {
        self.milli_cpu.max(0).unsigned_abs().saturating_mul(1_000_000)
    }

    pub(crate) fn memory_bytes(self) -> u64 {
        self.memory.max(0).unsigned_abs()
    }

    fn shown(self) -> Value {
        json!({"cpu": format!("{}m", self.milli_cpu), "memory": format!("{}Ki", self.memory / 1024)})
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<Running>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Running {
    started_at: Option<Timestamp>,
}

/// The usage of a running container.
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) usage: Usage,
}

/// Computes the usage of the running containers of a pod. `None` if it does not run on a simulated node.
pub(crate) fn container_usages(pod: &[u8]) -> Option<Vec<ContainerUsage>> {
    usages(&serde_json::from_slice(pod).ok()?)
}

fn usages(pod: &Pod) -> Option<Vec<ContainerUsage>> {
    if pod.status.phase != "Running" {
        return None;
    }
    let mut containers = Vec::new();
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    for status in statuses {
        let Some(running) = &status.state.running else { continue };
        if !status.container_id.starts_with(RUNTIME) {
            return None;
        }
        let mut specs = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let usage = specs.find(|spec| spec.name == status.name)?.usage(&pod.metadata.annotations);
        containers.push(ContainerUsage { name: status.name.clone(), since: running.started_at, usage });
    }
    Some(containers)
}

/// Computes the usage of a pod. `None` if it has no container that runs on a simulated node.
pub fn measure_pod(pod: &[u8], now: Timestamp) -> Option<Measured> {
    let pod: Pod = serde_json::from_slice(pod).ok()?;
    let measured = usages(&pod).filter(|measured| !measured.is_empty())?;
    let mut total = Usage::default();
    measured.iter().for_each(|container| total += container.usage);
    let shown =
        |container: &ContainerUsage| json!({"name": container.name, "usage": container.usage.shown()});
    let containers: Vec<Value> = measured.iter().map(shown).collect();
    let Meta { name, namespace, labels, .. } = pod.metadata;
    let mut metrics = stamped(json!({"name": name, "namespace": namespace, "labels": labels}), now);
    metrics["containers"] = containers.into();
    Some(Measured { node: pod.spec.node_name, total, metrics })
}

/// Computes the usage of a node, given the total of its pods. `None` if it is not simulated or not ready.
pub fn measure_node(node: &[u8], pods: Usage, now: Timestamp) -> Option<Value> {
    let node: Pod = serde_json::from_slice(node).ok()?;
    let simulated = node.metadata.labels.get(crate::fleet::SIMULATED).is_some_and(|label| label == "true");
    let ready = |condition: &Condition| condition.r#type == "Ready" && condition.status == "True";
    if !simulated || !node.status.conditions.iter().any(ready) {
        return None;
    }
    let mut usage = NODE_ITSELF;
    usage += pods;
    let Meta { name, labels, .. } = node.metadata;
    let mut metrics = stamped(json!({"name": name, "labels": labels}), now);
    metrics["usage"] = usage.shown();
    Some(metrics)
}

fn stamped(mut metadata: Value, now: Timestamp) -> Value {
    let now = whole_seconds(now).to_string();
    metadata["creationTimestamp"] = now.as_str().into();
    json!({"metadata": metadata, "timestamp": now, "window": WINDOW})
}

impl Container {
    fn usage(&self, annotations: &BTreeMap<String, String>) -> Usage {
        let request = |resource: &str, units: fn(&Quantity) -> i64| {
            let quantity = self.resources.requests.get(resource).and_then(|value| Quantity::of(value).ok());
            quantity.map(|quantity| units(&quantity))
        };
        let (cpu, memory) = (request("cpu", Quantity::milli_value), request("memory", Quantity::value));
        let annotated = |name: &str, request: Option<i64>, units: fn(&Quantity) -> i64| {
            annotations.get(name).and_then(|text| amount(text, request, units))
        };
        let milli_cpu = annotated(CPU_USAGE, cpu, Quantity::milli_value);
        let bytes = annotated(MEMORY_USAGE, memory, Quantity::value);
        Usage {
            milli_cpu: milli_cpu.unwrap_or_else(|| cpu.map_or(0, |asked| asked / 10).max(IDLE.milli_cpu)),
            memory: bytes.unwrap_or_else(|| memory.map_or(0, |asked| asked / 2).max(IDLE.memory)),
        }
    }
}

/// Parses a quantity, or a percentage of the request if there is one.
fn amount(text: &str, request: Option<i64>, units: fn(&Quantity) -> i64) -> Option<i64> {
    match text.strip_suffix('%') {
        Some(percent) => Some((request? as f64 * percent.parse::<f64>().ok()?.max(0.0) / 100.0) as i64),
        None => Quantity::parse(text).ok().map(|quantity| units(&quantity).max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2025-01-01T00:00:00.5Z";

    fn pod(annotations: Value, requests: Value) -> Value {
        let running = |name: &str| json!({"name": name, "containerID": format!("setpoint://{name}"), "state": {"running": {}}});
        json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "w"}, "annotations": annotations},
            "spec": {"nodeName": "node-0", "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running", "containerStatuses": [running("c")]},
        })
    }

    fn measured(pod: &Value) -> Option<Measured> {
        measure_pod(pod.to_string().as_bytes(), NOW.parse().expect("a time"))
    }

    #[test]
    fn usage_comes_from_annotations_or_is_that_of_an_idle_process() {
        let check = |annotations: Value, requests: Value, cpu: &str, memory: &str| {
            let measured = measured(&pod(annotations.clone(), requests)).expect("it runs");
            let usage = json!({"cpu": cpu, "memory": memory});
            assert_eq!(
                measured.metrics["containers"],
                json!([{"name": "c", "usage": usage}]),
                "{annotations}"
            );
        };
        let both = || json!({"cpu": "500m", "memory": "1Gi"});
        check(json!({}), json!({}), "1m", "16384Ki");
        check(json!({}), both(), "50m", "524288Ki");
        check(json!({CPU_USAGE: "2", MEMORY_USAGE: "1Mi"}), both(), "2000m", "1024Ki");
        check(json!({CPU_USAGE: "80%", MEMORY_USAGE: "50%"}), both(), "400m", "524288Ki");
        check(json!({CPU_USAGE: "80%"}), json!({}), "1m", "16384Ki");
        check(json!({CPU_USAGE: "much"}), both(), "50m", "524288Ki");
    }

    #[test]
    fn only_pods_on_simulated_nodes_are_measured() {
        let mut other = pod(json!({}), json!({}));
        other["status"]["containerStatuses"][0]["containerID"] = "containerd://1".into();
        assert_eq!(measured(&other), None);
        let mut waiting = pod(json!({}), json!({}));
        waiting["status"]["phase"] = "Pending".into();
        assert_eq!(measured(&waiting), None);
    }

    #[test]
    fn node_usage_is_the_sum_of_its_pods_plus_its_own() {
        let node = |ready: &str| {
            let node = json!({"metadata": {"name": "node-0", "labels": {"node.setpoint.dev/simulated": "true"}},
                              "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            let pods = Usage { milli_cpu: 50, memory: 1 << 20 };
            measure_node(node.to_string().as_bytes(), pods, NOW.parse().expect("a time"))
        };
        let metrics = node("True").expect("it is measured");
        assert_eq!(metrics["usage"], json!({"cpu": "150m", "memory": "525312Ki"}));
        assert_eq!(metrics["timestamp"], "2025-01-01T00:00:00Z");
        assert_eq!(node("Unknown"), None);
    }
}
