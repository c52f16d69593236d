//! The status a kubelet would write for a stage of a pod's life. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Cached;

use crate::lifecycle::{Container, PodView, Stage, gates_open};

/// Where a pod runs.
pub(crate) struct Place<'a> {
    pub(crate) host_ip: &'a str,
    pub(crate) pod_ip: &'a str,
}

/// A strategic-merge patch of the status: conditions that others own (`PodScheduled`, readiness gates)
/// stay as they are. It holds only for the version of the pod it was made from.
pub(crate) fn status_patch(pod: &Cached<PodView>, stage: &Stage, place: &Place<'_>, now: Timestamp) -> Value {
    let started = pod.status.start_time.unwrap_or(now);
    let mut status = json!({
        "phase": phase(stage),
        "startTime": second(started),
        "hostIP": place.host_ip,
        "hostIPs": [{"ip": place.host_ip}],
        "conditions": conditions(pod, stage, now),
        "containerStatuses": statuses(&pod.spec.containers, |container| {
            container_status(container, stage, running_since(pod), now)
        }),
    });
    if matches!(stage, Stage::Expired { .. }) {
        status["reason"] = "DeadlineExceeded".into();
        status["message"] = "Pod was active on the node longer than the specified deadline".into();
    }
    if !matches!(stage, Stage::Accepted) {
        status["podIP"] = place.pod_ip.into();
        status["podIPs"] = json!([{"ip": place.pod_ip}]);
    }
    if !pod.spec.init_containers.is_empty() {
        let inits = &pod.spec.init_containers;
        status["initContainerStatuses"] =
            statuses(inits, |container| init_status(container, stage, started, now));
    }
    json!({"metadata": {"uid": &pod.meta().uid, "resourceVersion": &pod.meta().resource_version}, "status": status})
}

/// When the containers that run now were started: becoming ready does not start them anew.
fn running_since(pod: &PodView) -> Option<Timestamp> {
    pod.status.container_statuses.first()?.state.running.as_ref()?.started_at
}

/// API times have whole seconds.
fn second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn phase(stage: &Stage) -> &'static str {
    match stage {
        Stage::Accepted | Stage::ImageMissing | Stage::Initializing => "Pending",
        Stage::Running { .. } | Stage::BackOff { .. } => "Running",
        Stage::Finished { code: 0, .. } => "Succeeded",
        Stage::Finished { .. } | Stage::Stopped { .. } | Stage::Expired { .. } => "Failed",
    }
}

fn conditions(pod: &PodView, stage: &Stage, now: Timestamp) -> Value {
    let initialized =
        !matches!(stage, Stage::Accepted | Stage::Initializing) || pod.spec.init_containers.is_empty();
    let containers_ready = matches!(stage, Stage::Running { ready: true, .. });
    let unready = match stage {
        Stage::Finished { code: 0, .. } => "PodCompleted",
        Stage::Finished { .. } | Stage::Stopped { .. } | Stage::Expired { .. } => "PodFailed",
        _ => "ContainersNotReady",
    };
    let pod_unready = if containers_ready { "ReadinessGatesNotReady" } else { unready };
    json!([
        condition(pod, "PodReadyToStartContainers", !matches!(stage, Stage::Accepted), "", now),
        condition(pod, "Initialized", initialized, "ContainersNotInitialized", now),
        condition(pod, "Ready", containers_ready && gates_open(pod), pod_unready, now),
        condition(pod, "ContainersReady", containers_ready, unready, now),
    ])
}

/// The transition time moves only when the condition does.
fn condition(
    pod: &PodView,
    condition_type: &str,
    is_true: bool,
    reason_if_not: &str,
    now: Timestamp,
) -> Value {
    let status = if is_true { "True" } else { "False" };
    let mut condition = json!({"type": condition_type, "status": status});
    let unchanged =
        pod.status.conditions.iter().any(|c| c.condition_type == condition_type && c.status == status);
    if !unchanged {
        condition["lastTransitionTime"] = second(now).into();
    }
    // A null removes what an earlier stage said.
    condition["reason"] =
        if is_true || reason_if_not.is_empty() { Value::Null } else { reason_if_not.into() };
    condition
}

fn statuses(containers: &[Container], status: impl Fn(&Container) -> Value) -> Value {
    containers.iter().map(status).collect()
}

fn container_status(container: &Container, stage: &Stage, since: Option<Timestamp>, now: Timestamp) -> Value {
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let terminated = |code: i32| json!({"terminated": exit(code, now)});
    let (state, ready, restarts) = match *stage {
        Stage::Accepted => (waiting("ContainerCreating"), false, 0),
        Stage::Initializing => (waiting("PodInitializing"), false, 0),
        Stage::ImageMissing => (waiting("ErrImagePull"), false, 0),
        Stage::Running { ready, restarts } => {
            (json!({"running": {"startedAt": second(since.unwrap_or(now))}}), ready, restarts)
        }
        Stage::BackOff { restarts, .. } => (waiting("CrashLoopBackOff"), false, restarts),
        Stage::Finished { code, restarts } => (terminated(code), false, restarts),
        // Killed by the signal that ends a container whose pod was deleted.
        Stage::Stopped { restarts } | Stage::Expired { restarts } => (terminated(137), false, restarts),
    };
    let mut status = named(container, state, ready, restarts);
    if let Stage::BackOff { code, .. } = *stage {
        status["lastState"] = terminated(code);
    }
    status
}

fn init_status(container: &Container, stage: &Stage, started: Timestamp, now: Timestamp) -> Value {
    let running = json!({"running": {"startedAt": second(started)}});
    let sidecar = container.restart_policy == "Always";
    match stage {
        Stage::Accepted => named(container, json!({"waiting": {"reason": "PodInitializing"}}), false, 0),
        Stage::Initializing => named(container, running, false, 0),
        Stage::Running { .. } | Stage::BackOff { .. } if sidecar => named(container, running, true, 0),
        _ => named(container, json!({"terminated": exit(0, now)}), true, 0),
    }
}

fn exit(code: i32, now: Timestamp) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"exitCode": code, "reason": reason, "finishedAt": second(now)})
}

fn named(container: &Container, state: Value, ready: bool, restarts: u32) -> Value {
    let created = state.get("waiting").is_none();
    let mut status = json!({
        "name": container.name,
        "image": container.image,
        "imageID": if created { container.image.as_str() } else { "" },
        "ready": ready,
        "started": state.get("running").is_some(),
        "restartCount": restarts,
        "state": state,
    });
    if created {
        status["containerID"] = format!("setpoint://{}", container.name).into();
    }
    status
}
