//! Where a pod stands in its life, and what its node does next. Pure.
//!
//! ```text
//!  Accepted ──start-after──► Initializing ──► Running ──exit──► Succeeded | Failed
//!     │                                        ▲  │
//!     └─ never-start: stuck in ErrImagePull    │  └─exit, restart policy allows─► BackOff ─┐
//!                                              └──────────────────────────────────────────┘
//!  any ──deleted, terminate-after──► Stopped ──► removed
//! ```
//!
//! The stage is read from the pod's own status, never remembered: an agent that restarts carries on.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use setpoint::Metadata;

use crate::behaviour::Behaviour;

/// What a node reads of a pod.
#[derive(Debug, Deserialize)]
pub(crate) struct PodView {
    #[serde(default)]
    pub(crate) metadata: Annotated,
    #[serde(default)]
    pub(crate) spec: Spec,
    #[serde(default)]
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
    pub(crate) readiness_gates: Vec<ReadinessGate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    /// `Always` on an init container makes it a sidecar.
    pub(crate) restart_policy: String,
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
    pub(crate) start_time: Option<Timestamp>,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<String>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) condition_type: String,
    pub(crate) status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) restart_count: u32,
    pub(crate) ready: bool,
    pub(crate) state: State,
    pub(crate) last_state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) running: Option<Running>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Running {
    pub(crate) started_at: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) finished_at: Option<Timestamp>,
}

/// What the node does about a pod now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until the pod changes.
    Rest,
    /// Nothing, until this much time has passed.
    Wait(Duration),
    /// Write the status of this stage.
    Enter(Stage),
    /// The pod has stopped: remove the object.
    Remove,
}

/// A stage of a pod's life, as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The node has taken the pod up; its containers are being created.
    Accepted,
    /// The image cannot be pulled.
    ImageMissing,
    /// Init containers run.
    Initializing,
    Running {
        ready: bool,
        restarts: u32,
    },
    /// Containers exited and wait for their restart.
    BackOff {
        restarts: u32,
        code: i32,
    },
    /// Containers exited for good.
    Finished {
        code: i32,
        restarts: u32,
    },
    /// The pod was active for longer than it may be.
    Expired {
        restarts: u32,
    },
    /// The pod was deleted and its containers were stopped.
    Stopped {
        restarts: u32,
    },
}

/// How long init containers take: long enough to be seen.
const INIT_TAKES: Duration = Duration::from_millis(500);

/// The kubelet's restart back-off: at first almost none, then 10 s, doubling, at most 5 min.
fn restart_delay(restarts: u32) -> Duration {
    match restarts {
        0 | 1 => Duration::from_secs(1),
        _ => Duration::from_secs(10).saturating_mul(1 << (restarts - 2).min(5)).min(Duration::from_secs(300)),
    }
}

/// What is next for a pod.
pub(crate) fn next(meta: &Metadata, pod: &PodView, behaviour: &Behaviour, now: Timestamp) -> Step {
    let finished = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    match (meta.deletion_timestamp, finished) {
        (Some(_), true) => Step::Remove,
        (Some(deadline), false) => stop(meta, deadline, pod, behaviour, now),
        (None, true) => Step::Rest,
        (None, false) => within_deadline(pod, live(pod, behaviour, now), now),
    }
}

/// A deleted pod stops after the time it takes, but never beyond its grace period.
fn stop(meta: &Metadata, deadline: Timestamp, pod: &PodView, behaviour: &Behaviour, now: Timestamp) -> Step {
    let grace = Duration::from_secs(meta.deletion_grace_period_seconds.unwrap_or(0).max(0).unsigned_abs());
    let asked_at = deadline - grace;
    wait_or(asked_at + behaviour.terminate_after.min(grace), now, || match pod.status.start_time {
        None => Step::Remove,
        Some(_) => Step::Enter(Stage::Stopped { restarts: restarts(pod) }),
    })
}

/// What is next, unless the pod has been active for as long as it may be.
fn within_deadline(pod: &PodView, step: Step, now: Timestamp) -> Step {
    let (Some(seconds), Some(started)) = (pod.spec.active_deadline_seconds, pod.status.start_time) else {
        return step;
    };
    let over = wait_or(started + Duration::from_secs(seconds), now, || {
        Step::Enter(Stage::Expired { restarts: restarts(pod) })
    });
    match (step, over) {
        (Step::Wait(next), Step::Wait(left)) => Step::Wait(next.min(left)),
        (Step::Rest, Step::Wait(left)) => Step::Wait(left),
        (step, Step::Wait(_)) => step,
        (_, over) => over,
    }
}

fn live(pod: &PodView, behaviour: &Behaviour, now: Timestamp) -> Step {
    let Some(accepted) = pod.status.start_time else {
        let at_once = behaviour.start_after.is_zero() && !behaviour.never_start;
        return Step::Enter(if at_once { first_stage(pod, behaviour) } else { Stage::Accepted });
    };
    let Some(container) = pod.status.container_statuses.first() else {
        return Step::Enter(first_stage(pod, behaviour));
    };
    match &container.state {
        State { waiting: Some(waiting), .. } => waiting_for(&waiting.reason, accepted, pod, behaviour, now),
        State { running: Some(running), .. } => {
            while_running(running.started_at.unwrap_or(accepted), pod, behaviour, now)
        }
        _ => Step::Rest,
    }
}

fn waiting_for(
    reason: &str,
    accepted: Timestamp,
    pod: &PodView,
    behaviour: &Behaviour,
    now: Timestamp,
) -> Step {
    match reason {
        "ErrImagePull" => Step::Rest,
        "PodInitializing" => {
            wait_or(accepted + behaviour.start_after + INIT_TAKES, now, || Step::Enter(run(behaviour, 0)))
        }
        "CrashLoopBackOff" => {
            let restarts = restarts(pod);
            let exited = last_exit(pod).unwrap_or(accepted);
            wait_or(exited + restart_delay(restarts), now, || Step::Enter(run(behaviour, restarts)))
        }
        _ => wait_or(accepted + behaviour.start_after, now, || Step::Enter(first_stage(pod, behaviour))),
    }
}

fn while_running(started: Timestamp, pod: &PodView, behaviour: &Behaviour, now: Timestamp) -> Step {
    let restarts = restarts(pod);
    let exit = behaviour.exits.as_ref().filter(|exit| exit.happens_after(restarts));
    if let Some(exit) = exit.filter(|exit| now >= started + exit.after) {
        return Step::Enter(after_exit(&pod.spec.restart_policy, exit.code, restarts));
    }
    let becomes_ready = (!behaviour.never_ready).then(|| started + behaviour.ready_after);
    let ready = becomes_ready.is_some_and(|at| now >= at);
    if ready != shown_ready(pod) || ready && pod_ready(pod) != gates_open(pod) {
        return Step::Enter(Stage::Running { ready, restarts });
    }
    let next_ready = becomes_ready.filter(|at| *at > now);
    let next_exit = exit.map(|exit| started + exit.after);
    match next_ready.into_iter().chain(next_exit).min() {
        Some(at) => wait_or(at, now, || Step::Rest),
        None => Step::Rest,
    }
}

/// What becomes of containers that exited: the restart policy decides.
fn after_exit(restart_policy: &str, code: i32, restarts: u32) -> Stage {
    let restarted = match restart_policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    };
    if restarted {
        Stage::BackOff { restarts: restarts + 1, code }
    } else {
        Stage::Finished { code, restarts }
    }
}

fn first_stage(pod: &PodView, behaviour: &Behaviour) -> Stage {
    if behaviour.never_start {
        Stage::ImageMissing
    } else if pod.spec.init_containers.is_empty() {
        run(behaviour, 0)
    } else {
        Stage::Initializing
    }
}

fn run(behaviour: &Behaviour, restarts: u32) -> Stage {
    Stage::Running { ready: !behaviour.never_ready && behaviour.ready_after.is_zero(), restarts }
}

fn wait_or(at: Timestamp, now: Timestamp, then: impl FnOnce() -> Step) -> Step {
    match Duration::try_from(at.duration_since(now)) {
        Ok(left) if !left.is_zero() => Step::Wait(left),
        _ => then(),
    }
}

fn restarts(pod: &PodView) -> u32 {
    pod.status.container_statuses.iter().map(|status| status.restart_count).max().unwrap_or(0)
}

fn shown_ready(pod: &PodView) -> bool {
    pod.status.container_statuses.iter().all(|status| status.ready)
}

fn condition<'a>(pod: &'a PodView, condition_type: &str) -> Option<&'a Condition> {
    pod.status.conditions.iter().find(|condition| condition.condition_type == condition_type)
}

fn pod_ready(pod: &PodView) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

fn last_exit(pod: &PodView) -> Option<Timestamp> {
    let exits =
        pod.status.container_statuses.iter().filter_map(|status| status.last_state.terminated.as_ref());
    exits.filter_map(|terminated| terminated.finished_at).max()
}

/// Whether every readiness gate's condition, which somebody else sets, is true.
pub(crate) fn gates_open(pod: &PodView) -> bool {
    let open =
        |gate: &ReadinessGate| condition(pod, &gate.condition_type).is_some_and(|c| c.status == "True");
    pod.spec.readiness_gates.iter().all(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: &str = "2025-01-01T00:01:00Z";

    /// What is next for a pod with these annotations, spec fields and status, at `NOW`.
    fn step(annotations: Value, spec: Value, status: Value, deletion: Option<(&str, i64)>) -> Step {
        let annotated = json!({"metadata": {"annotations": annotations}, "spec": spec, "status": status});
        let pod: PodView = serde_json::from_value(annotated).expect("a pod");
        let mut meta = Metadata::default();
        if let Some((deadline, grace)) = deletion {
            meta.deletion_timestamp = Some(deadline.parse().expect("a time"));
            meta.deletion_grace_period_seconds = Some(grace);
        }
        next(&meta, &pod, &Behaviour::of(&pod.metadata.annotations), NOW.parse().expect("a time"))
    }

    fn running_since(time: &str, restarts: u32, ready: bool) -> Value {
        let container =
            json!({"ready": ready, "restartCount": restarts, "state": {"running": {"startedAt": time}}});
        let ready = if ready { "True" } else { "False" };
        json!({"phase": "Running", "startTime": time, "containerStatuses": [container],
               "conditions": [{"type": "Ready", "status": ready}]})
    }

    #[test]
    fn a_new_pod_runs_and_is_ready_at_once() {
        let plain = step(json!({}), json!({}), json!({"phase": "Pending"}), None);
        assert_eq!(plain, Step::Enter(Stage::Running { ready: true, restarts: 0 }));
    }

    #[test]
    fn a_pod_with_init_containers_initializes_first() {
        let spec = json!({"initContainers": [{"name": "i"}]});
        assert_eq!(step(json!({}), spec, json!({}), None), Step::Enter(Stage::Initializing));
    }

    #[test]
    fn a_settled_pod_rests() {
        let status = running_since("2025-01-01T00:00:00Z", 0, true);
        assert_eq!(step(json!({}), json!({}), status, None), Step::Rest);
    }

    #[test]
    fn a_slow_pod_becomes_ready_when_its_time_has_come() {
        let slow = json!({"node.setpoint.dev/ready-after": "90s"});
        let waiting = running_since("2025-01-01T00:00:00Z", 0, false);
        assert_eq!(step(slow.clone(), json!({}), waiting, None), Step::Wait(Duration::from_secs(30)));
        let due = running_since("2024-12-31T23:59:00Z", 0, false);
        assert_eq!(
            step(slow, json!({}), due, None),
            Step::Enter(Stage::Running { ready: true, restarts: 0 })
        );
    }

    #[test]
    fn an_exit_is_final_or_a_restart_as_the_policy_says() {
        let check = |policy: &str, code: &str, expected: Stage| {
            let exits = json!({"node.setpoint.dev/run-for": "10s", "node.setpoint.dev/exit-code": code});
            let status = running_since("2025-01-01T00:00:00Z", 0, true);
            assert_eq!(step(exits, json!({"restartPolicy": policy}), status, None), Step::Enter(expected));
        };
        check("Never", "1", Stage::Finished { code: 1, restarts: 0 });
        check("OnFailure", "0", Stage::Finished { code: 0, restarts: 0 });
        check("OnFailure", "1", Stage::BackOff { restarts: 1, code: 1 });
        check("Always", "0", Stage::BackOff { restarts: 1, code: 0 });
    }

    #[test]
    fn a_crashed_container_comes_back_after_the_kubelets_back_off() {
        let status = |finished: &str| {
            json!({"phase": "Running", "startTime": "2025-01-01T00:00:00Z", "containerStatuses": [{
                "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": finished}}}]})
        };
        let crashes = json!({"node.setpoint.dev/exit-code": "1"});
        let check = |finished, expected| {
            assert_eq!(step(crashes.clone(), json!({}), status(finished), None), expected)
        };
        check("2025-01-01T00:00:55Z", Step::Wait(Duration::from_secs(5)));
        check("2025-01-01T00:00:50Z", Step::Enter(Stage::Running { ready: true, restarts: 2 }));
    }

    #[test]
    fn a_pod_ends_when_its_deadline_has_passed() {
        let since = |time: &str| running_since(time, 0, true);
        let deadline = || json!({"activeDeadlineSeconds": 60});
        let left = step(json!({}), deadline(), since("2025-01-01T00:00:30Z"), None);
        assert_eq!(left, Step::Wait(Duration::from_secs(30)));
        let over = step(json!({}), deadline(), since("2025-01-01T00:00:00Z"), None);
        assert_eq!(over, Step::Enter(Stage::Expired { restarts: 0 }));
    }

    #[test]
    fn a_deleted_pod_stops_within_its_grace_period_and_is_then_removed() {
        let slow = json!({"node.setpoint.dev/terminate-after": "1h"});
        let status = running_since("2025-01-01T00:00:00Z", 0, true);
        let deleted = |deadline| step(slow.clone(), json!({}), status.clone(), Some((deadline, 30)));
        assert_eq!(deleted("2025-01-01T00:01:20Z"), Step::Wait(Duration::from_secs(20)));
        assert_eq!(deleted("2025-01-01T00:01:00Z"), Step::Enter(Stage::Stopped { restarts: 0 }));
        let stopped = json!({"phase": "Failed"});
        assert_eq!(step(json!({}), json!({}), stopped, Some(("2025-01-01T00:01:30Z", 30))), Step::Remove);
    }

    #[test]
    fn readiness_gates_hold_the_pod_back_until_somebody_opens_them() {
        let spec = json!({"readinessGates": [{"conditionType": "lb"}]});
        let mut status = running_since("2025-01-01T00:00:00Z", 0, true);
        status["conditions"] = json!([{"type": "Ready", "status": "False"}]);
        assert_eq!(step(json!({}), spec.clone(), status.clone(), None), Step::Rest);
        status["conditions"] =
            json!([{"type": "Ready", "status": "False"}, {"type": "lb", "status": "True"}]);
        let opened = Step::Enter(Stage::Running { ready: true, restarts: 0 });
        assert_eq!(step(json!({}), spec, status, None), opened);
    }
}
