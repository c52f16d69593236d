//! The status a kubelet would write for a pod's state. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Cached;
use setpoint::conditions::whole_seconds;

use crate::container::{Exit, Standing, State};
use crate::lifecycle::PodNow;
use crate::resize::{PENDING, Refused, Sizes};
use crate::view::{Container, PodView};

/// The reason of an evicted pod.
pub(crate) const EVICTED: &str = "Evicted";

/// Where a pod runs.
pub(crate) struct Place<'a> {
    pub(crate) host_ip: &'a str,
    /// Primary address first.
    pub(crate) pod_ips: &'a [String],
}

/// Builds a strategic merge patch of the status. Conditions owned by others (`PodScheduled`, readiness gates) are kept.
/// It is only valid for the version of the pod it was made from.
pub(crate) fn status_patch(pod: &Cached<PodView>, next: &PodNow, place: &Place<'_>, now: Timestamp) -> Value {
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
    if next.main.iter().any(Standing::has_run) {
        return None;
    }
    let done = |container: &Container, standing: &Standing| {
        if container.is_sidecar() { standing.started } else { standing.ready }
    };
    let open = names(&pod.spec.init_containers, &next.init, |container, standing| !done(container, standing));
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
    let sidecars =
        names(&pod.spec.init_containers, &next.init, |init, standing| init.is_sidecar() && !standing.ready);
    let main = names(&pod.spec.containers, &next.main, |_, standing| !standing.ready);
    let unready: Vec<String> = [sidecars, main].into_iter().filter(|names| !names.is_empty()).collect();
    Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))))
}

fn names(
    containers: &[Container],
    standings: &[Standing],
    is_meant: impl Fn(&Container, &Standing) -> bool,
) -> String {
    let meant =
        containers.iter().zip(standings).filter(|(container, standing)| is_meant(container, standing));
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

fn statuses(containers: &[Container], standings: &[Standing], sizes: Option<(&Sizes, bool)>) -> Value {
    containers.iter().zip(standings).map(|(container, standing)| status(container, standing, sizes)).collect()
}

fn status(container: &Container, standing: &Standing, sizes: Option<(&Sizes, bool)>) -> Value {
    let created = standing.has_run();
    let mut status = json!({
        "name": container.name,
        "image": container.image,
        "imageID": if created { container.image.as_str() } else { "" },
        "ready": standing.ready,
        "started": standing.started,
        "restartCount": standing.restarts,
        "state": state(&standing.state),
    });
    if created {
        status["containerID"] = format!("setpoint://{}", container.name).into();
    }
    if let Some(exit) = &standing.last {
        status["lastState"] = json!({"terminated": terminated(exit)});
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

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": second(*since)}}),
        State::Terminated(exit) => json!({"terminated": terminated(exit)}),
    }
}

fn terminated(exit: &Exit) -> Value {
    let mut terminated =
        json!({"exitCode": exit.code, "reason": exit.reason(), "finishedAt": second(exit.finished)});
    if let Some(started) = exit.started {
        terminated["startedAt"] = second(started).into();
    }
    if !exit.message.is_empty() {
        terminated["message"] = (*exit.message).into();
    }
    terminated
}
