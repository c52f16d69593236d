//! The table columns of pods, as in `kubectl get pods`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::is_sidecar;
use crate::json::Json;
use crate::table::{Column, or_none, time_since};
use crate::validation::has_condition;

const READY: &str = "The aggregate readiness state of this pod for accepting traffic.";
const STATUS: &str = "The aggregate status of the containers in this pod.";
const RESTARTS: &str = "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.";
const IP: &str =
    "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.";
const NODE: &str = "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename";
const NOMINATED_NODE: &str = "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled.";
const READINESS_GATES: &str = "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates";

pub(super) fn all() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Ready", READY, |pod, _| Summary::of(pod).ready().into()),
        Column::text("Status", STATUS, |pod, _| Summary::of(pod).reason.into()),
        Column::text("Restarts", RESTARTS, |pod, now| Summary::of(pod).restarts(now).into()),
        Column::age(),
        Column::text("IP", IP, |pod, _| or_none(pod.at("status").text("podIP"))).wide(),
        Column::text("Node", NODE, |pod, _| or_none(pod.at("spec").text("nodeName"))).wide(),
        Column::text("Nominated Node", NOMINATED_NODE, |pod, _| {
            or_none(pod.at("status").text("nominatedNodeName"))
        })
        .wide(),
        Column::text("Readiness Gates", READINESS_GATES, |pod, _| readiness_gates(pod)).wide(),
    ]
}

/// A pod's state in one line: how many of its containers are ready, and a one-word status.
struct Summary<'a> {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    /// When a container last ended, as in its status; times in the same format compare as strings.
    last_restart: &'a str,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let (spec, status) = (pod.at("spec"), pod.at("status"));
        let sidecars = spec.list("initContainers").iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            reason: initial_reason(status),
            ready: 0,
            total: spec.list("containers").len() + sidecars,
            restarts: 0,
            last_restart: "",
        };
        let initialized = summary.read_init_containers(spec, status);
        if initialized || has_condition(status, "Initialized") {
            summary.read_containers(status);
        }
        summary.read_deletion(pod);
        summary
    }

    /// Returns whether all init containers are done.
    fn read_init_containers(&mut self, spec: &Value, status: &'a Value) -> bool {
        let sidecars = spec.list("initContainers").iter().filter(|spec| is_sidecar(spec));
        let sidecars: BTreeSet<&str> = sidecars.map(|spec| spec.text("name")).collect();
        let (mut sidecar_restarts, mut sidecar_last) = (0, "");
        for (index, container) in status.list("initContainerStatuses").iter().enumerate() {
            self.count_restarts(container);
            let name = container.text("name");
            let sidecar = sidecars.contains(name);
            if sidecar {
                sidecar_restarts += container.count("restartCount");
                sidecar_last = sidecar_last.max(last_end(container));
            }
            match init_progress(container, sidecar) {
                Progress::Done => {}
                Progress::Running => self.ready += usize::from(container.flag("ready")),
                Progress::Blocked(reason) => {
                    self.reason = format!("Init:{reason}");
                    return false;
                }
                Progress::Pending => {
                    self.reason = format!("Init:{index}/{}", spec.list("initContainers").len());
                    return false;
                }
            }
        }
        (self.restarts, self.last_restart) = (sidecar_restarts, sidecar_last);
        true
    }

    fn read_containers(&mut self, status: &'a Value) {
        let mut any_running = false;
        for container in status.list("containerStatuses").iter().rev() {
            self.count_restarts(container);
            let state = container.at("state");
            if !state.at("waiting").text("reason").is_empty() {
                self.reason = state.at("waiting").text("reason").to_owned();
            } else if state.has("terminated") {
                self.reason = end_reason(state.at("terminated"));
            } else if container.flag("ready") && state.has("running") {
                any_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && any_running {
            self.reason = if has_condition(status, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn read_deletion(&mut self, pod: &Value) {
        let status = pod.at("status");
        if !pod.at("metadata").has("deletionTimestamp") {
            return;
        }
        if status.text("reason") == "NodeLost" {
            self.reason = "Unknown".into();
        } else if !matches!(status.text("phase"), "Succeeded" | "Failed") {
            self.reason = "Terminating".into();
        }
    }

    fn count_restarts(&mut self, container: &'a Value) {
        self.restarts += container.count("restartCount");
        self.last_restart = self.last_restart.max(last_end(container));
    }

    fn ready(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    fn restarts(&self, now: Timestamp) -> String {
        match (self.restarts, self.last_restart) {
            (0, _) | (_, "") => self.restarts.to_string(),
            (restarts, last) => format!("{restarts} ({} ago)", time_since(last, now)),
        }
    }
}

fn initial_reason(status: &Value) -> String {
    let gated = |condition: &Value| {
        condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated"
    };
    match status.text("reason") {
        _ if status.list("conditions").iter().any(gated) => "SchedulingGated".into(),
        "" => status.text("phase").into(),
        reason => reason.into(),
    }
}

/// The progress of an init container.
enum Progress {
    Done,
    /// A sidecar that has started.
    Running,
    Blocked(String),
    Pending,
}

fn init_progress(container: &Value, sidecar: bool) -> Progress {
    let state = container.at("state");
    let (terminated, waiting) = (state.at("terminated"), state.at("waiting").text("reason"));
    if state.has("terminated") && terminated.count("exitCode") == 0 {
        Progress::Done
    } else if sidecar && container.flag("started") {
        Progress::Running
    } else if state.has("terminated") {
        Progress::Blocked(end_reason(terminated))
    } else if !matches!(waiting, "" | "PodInitializing") {
        Progress::Blocked(waiting.to_owned())
    } else {
        Progress::Pending
    }
}

/// Returns why a container ended: its reason, or the signal or exit code.
fn end_reason(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.count("signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.count("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn last_end(container: &Value) -> &str {
    container.at("lastState").at("terminated").text("finishedAt")
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = pod.at("spec").list("readinessGates");
    if gates.is_empty() {
        return or_none("");
    }
    let open =
        gates.iter().filter(|gate| has_condition(pod.at("status"), gate.text("conditionType"))).count();
    format!("{open}/{}", gates.len()).into()
}

/// Adds a condition to the row of a finished pod.
pub(super) fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match pod.at("status").text("phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks the cells Ready, Status and Restarts.
    fn check(pod: Value, expected: [&str; 3]) {
        let now = "2020-01-01T01:00:00Z".parse().unwrap();
        let columns = all();
        let cells: Vec<_> = columns[1..4].iter().map(|column| (column.cell)(&pod, now)).collect();
        assert_eq!(cells, expected, "{pod}");
    }

    #[test]
    fn a_row_summarizes_a_pod() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        check(json!({"spec": spec, "status": {"phase": "Pending"}}), ["0/2", "Pending", "0"]);
        check(
            json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}},
                {"name": "b", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"finishedAt": "2020-01-01T00:59:30Z"}}}]}}),
            ["1/2", "CrashLoopBackOff", "2 (30s ago)"],
        );
        check(
            json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}},
                {"name": "b", "state": {"terminated": {"reason": "Completed"}}}]}}),
            ["1/2", "NotReady", "0"],
        );
        check(
            json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}, "spec": spec,
                   "status": {"phase": "Running"}}),
            ["0/2", "Terminating", "0"],
        );
        check(
            json!({"spec": spec, "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "reason": "SchedulingGated", "status": "False"}]}}),
            ["0/2", "SchedulingGated", "0"],
        );
    }

    #[test]
    fn a_row_shows_init_container_progress() {
        let spec = json!({"containers": [{"name": "a"}], "initContainers": [
            {"name": "s", "restartPolicy": "Always"}, {"name": "i"}]});
        let with = |statuses: Value| json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": statuses}});
        check(
            with(json!([{"name": "s", "started": true, "ready": true}, {"name": "i"}])),
            ["1/2", "Init:1/2", "0"],
        );
        check(
            with(json!([{"name": "s", "started": true}, {"name": "i", "restartCount": 1,
                         "state": {"terminated": {"exitCode": 3}}}])),
            ["0/2", "Init:ExitCode:3", "1"],
        );
        check(
            with(json!([{"name": "s", "state": {"waiting": {"reason": "ErrImagePull"}}}])),
            ["0/2", "Init:ErrImagePull", "0"],
        );
    }
}
