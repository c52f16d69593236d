//! The status a kubelet would write for a pod's state. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Cached;
use setpoint::conditions::whole_seconds;

use crate::container::{ContainerState, Exit, State};
use crate::lifecycle::PodNow;
use crate::resize::{PENDING, Refused, Sizes};
use crate::usage::RUNTIME;
use crate::view::{Container, PodView};

/// The reason of an evicted pod.
pub(crate) const EVICTED: &str = "Evicted";

/// Where a pod runs.
pub(crate) struct PodAddresses<'a> {
    pub(crate) host_ip: &'a str,
    /// Primary address first.
    pub(crate) pod_ips: &'a [String],
}

/// Builds a strategic merge patch of the status. Conditions owned by others (`PodScheduled`, readiness gates) are kept.
/// It is only valid for the version of the pod it was made from.
pub(crate) fn status_patch(
    pod: &Cached<PodView>,
    next: &PodNow,
    place: &PodAddresses<'_>,
    now: Timestamp,
) -> Value {
    let meta = pod.meta();
    let mut status = json!({"phase": next.phase});
    if meta.generation != 0 {
        status["observedGeneration"] = meta.generation.into();
    }
    if let Some((reason, message)) = &next.failure {
        status["reason"] = (**reason).into();
        status["message"] = (**message).into();
    }
    if !next.main.is_empty() {
        status["startTime"] = second(pod.status.start_time.unwrap_or(now)).into();
        status["hostIP"] = place.host_ip.into();
        status["hostIPs"] = json!([{"ip": place.host_ip}]);
        status["conditions"] = conditions(pod, next, now);
        let sizes = Sizes::of(pod.object());
        let sizes = sizes.as_ref().map(|sizes| (sizes, next.refused.is_some()));
        status["containerStatuses"] = statuses(&pod.spec.containers, &next.main, sizes);
        if !next.init.is_empty() {
            status["initContainerStatuses"] = statuses(&pod.spec.init_containers, &next.init, sizes);
        }
        if !next.ephemeral.is_empty() {
            status["ephemeralContainerStatuses"] =
                statuses(&pod.spec.ephemeral_containers, &next.ephemeral, sizes);
        }
        if let Some(first) = place.pod_ips.first() {
            status["podIP"] = first.as_str().into();
            status["podIPs"] = place.pod_ips.iter().map(|ip| json!({"ip": ip})).collect();
        }
    }
    json!({"metadata": {"uid": &meta.uid, "resourceVersion": &meta.resource_version}, "status": status})
}

/// API times have whole seconds.
fn second(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

fn conditions(pod: &Cached<PodView>, next: &PodNow, now: Timestamp) -> Value {
    let (initialized, ready) = (initialized(pod, next), containers_ready(pod, next));
    let pod_ready = if ready.is_none() { gates_open(pod) } else { ready.clone() };
    let mut conditions = vec![
        condition(pod, "PodReadyToStartContainers", (!next.has_network).then(|| ("", String::new())), now),
        condition(pod, "Initialized", initialized, now),
        condition(pod, "Ready", pod_ready, now),
        condition(pod, "ContainersReady", ready, now),
        condition(pod, "PodScheduled", None, now),
    ];
    if let Some((reason, message)) = &next.failure
        && &**reason == EVICTED
    {
        let mut target = condition(pod, "DisruptionTarget", None, now);
        (target["reason"], target["message"]) = ("TerminationByKubelet".into(), (**message).into());
        conditions.push(target);
    }
    if let Some(Refused { reason, message }) = &next.refused {
        let mut pending = condition(pod, PENDING, None, now);
        (pending["reason"], pending["message"]) = ((*reason).into(), message.as_str().into());
        conditions.push(pending);
    } else if pod.condition(PENDING).is_some() {
        conditions.push(json!({"$patch": "delete", "type": PENDING}));
    }
    conditions.into()
}

/// Why a condition is false: reason and message.
type Unmet = Option<(&'static str, String)>;

fn initialized(pod: &PodView, next: &PodNow) -> Unmet {
    if next.main.iter().any(ContainerState::has_run) {
        return None;
    }
    let done = |container: &Container, container_state: &ContainerState| {
        if container.is_sidecar() { container_state.started } else { container_state.ready }
    };
    let open = names(&pod.spec.init_containers, &next.init, |container, container_state| {
        !done(container, container_state)
    });
    (!open.is_empty())
        .then(|| ("ContainersNotInitialized", format!("containers with incomplete status: [{open}]")))
}

fn containers_ready(pod: &PodView, next: &PodNow) -> Unmet {
    match next.phase {
        "Succeeded" => return Some(("PodCompleted", String::new())),
        "Failed" => return Some(("PodFailed", String::new())),
        _ if next.has_ready_containers(pod) => return None,
        _ => {}
    }
    let sidecars = names(&pod.spec.init_containers, &next.init, |init, container_state| {
        init.is_sidecar() && !container_state.ready
    });
    let main = names(&pod.spec.containers, &next.main, |_, container_state| !container_state.ready);
    let unready: Vec<String> = [sidecars, main].into_iter().filter(|names| !names.is_empty()).collect();
    Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))))
}

fn names(
    containers: &[Container],
    container_states: &[ContainerState],
    is_meant: impl Fn(&Container, &ContainerState) -> bool,
) -> String {
    let meant = containers
        .iter()
        .zip(container_states)
        .filter(|(container, container_state)| is_meant(container, container_state));
    meant.map(|(container, _)| container.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn gates_open(pod: &PodView) -> Unmet {
    let closed = pod.spec.readiness_gates.iter().filter_map(|gate| {
        let name = &gate.condition_type;
        match pod.condition(name) {
            None => Some(format!("corresponding condition of pod readiness gate {name:?} does not exist.")),
            Some(condition) if condition.status != "True" => {
                let status = &condition.status;
                Some(format!("the status of pod readiness gate {name:?} is not \"True\", but {status}"))
            }
            Some(_) => None,
        }
    });
    let closed: Vec<String> = closed.collect();
    (!closed.is_empty()).then(|| ("ReadinessGatesNotReady", closed.join(", ")))
}

/// Builds a condition. The transition time only changes with the status.
fn condition(pod: &Cached<PodView>, condition_type: &str, unmet: Unmet, now: Timestamp) -> Value {
    let status = if unmet.is_none() { "True" } else { "False" };
    let mut condition = json!({"type": condition_type, "status": status});
    if pod.meta().generation != 0 {
        condition["observedGeneration"] = pod.meta().generation.into();
    }
    if pod.condition(condition_type).is_none_or(|shown| shown.status != status) {
        condition["lastTransitionTime"] = second(now).into();
    }
    // A null removes the previous value.
    let (reason, message) = unmet.unwrap_or_default();
    let text_or_null = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    condition["reason"] = text_or_null(reason);
    condition["message"] = text_or_null(&message);
    condition
}

fn statuses(
    containers: &[Container],
    container_states: &[ContainerState],
    sizes: Option<(&Sizes, bool)>,
) -> Value {
    containers
        .iter()
        .zip(container_states)
        .map(|(container, container_state)| status(container, container_state, sizes))
        .collect()
}

fn status(container: &Container, container_state: &ContainerState, sizes: Option<(&Sizes, bool)>) -> Value {
    let created = container_state.has_run();
    let mut status = json!({
        "name": container.name,
        "image": container.image,
        "imageID": if created { container.image.as_str() } else { "" },
        "ready": container_state.ready,
        "started": container_state.started,
        "restartCount": container_state.restarts,
        "state": state(&container.name, container_state),
    });
    if created {
        status["containerID"] = container_id(&container.name, container_state.restarts).into();
    }
    if let Some(exit) = &container_state.last {
        let run = match container_state.state {
            // It waits to be restarted.
            State::Waiting { .. } => container_state.restarts,
            _ => container_state.restarts.saturating_sub(1),
        };
        status["lastState"] = json!({"terminated": terminated(exit, &container_id(&container.name, run))});
    }
    if created {
        // Fields that are not set keep their value.
        let resources = sizes.and_then(|(sizes, keeps)| sizes.shown(&container.name, keeps));
        let resources = resources.cloned().unwrap_or_else(|| json!({}));
        if let Some(requests) = resources.get("requests") {
            status["allocatedResources"] = requests.clone();
        }
        status["resources"] = resources;
    }
    status
}

/// Returns the ID of a run of a container. It is unique in its pod.
fn container_id(name: &str, run: u32) -> String {
    format!("{RUNTIME}{name}/{run}")
}

fn state(name: &str, container_state: &ContainerState) -> Value {
    match &container_state.state {
        State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": second(*since)}}),
        State::Terminated(exit) => {
            json!({"terminated": terminated(exit, &container_id(name, container_state.restarts))})
        }
    }
}

fn terminated(exit: &Exit, container_id: &str) -> Value {
    let mut terminated =
        json!({"exitCode": exit.code, "reason": exit.reason(), "finishedAt": second(exit.finished)});
    if let Some(started) = exit.started {
        terminated["startedAt"] = second(started).into();
        terminated["containerID"] = container_id.into();
    }
    if !exit.message.is_empty() {
        terminated["message"] = (*exit.message).into();
    }
    terminated
}
