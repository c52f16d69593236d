//! The events that a kubelet records about a pod's containers, with its messages. Pure.
//!
//! Events follow from the difference between the pod's current and next status.

use std::time::Duration;

use setpoint::{Cached, EventType, Instant};

use crate::container::{CRASH_LOOP, ContainerState, Restarts, State};
use crate::images::{INVALID_NAME, NEVER_PULLED, PULL_BACK_OFF, PULL_FAILED};
use crate::lifecycle::PodNow;
use crate::probes::ProbeKind;
use crate::view::{Container, ContainerStatus, PodView, Probe, ProbeType};

/// An event about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub(crate) event_type: EventType,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Rate limit of normal events for all nodes together: that of one kubelet. Otherwise a burst of ten thousand pods
/// would cause three times as many events that nobody reads.
#[derive(Debug)]
pub(crate) struct EventLimit {
    left: f64,
    since: Option<Instant>,
}

/// The kubelet's limits.
const EVENTS_PER_SECOND: f64 = 50.0;
const BURST: f64 = 100.0;

impl Default for EventLimit {
    fn default() -> Self {
        Self { left: BURST, since: None }
    }
}

impl EventLimit {
    /// Whether one more event can be recorded now.
    pub(crate) fn has_room(&mut self, now: Instant) -> bool {
        let passed = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.since = Some(now);
        self.left = (self.left + passed.as_secs_f64() * EVENTS_PER_SECOND).min(BURST);
        let has_room = self.left >= 1.0;
        if has_room {
            self.left -= 1.0;
        }
        has_room
    }
}

/// Returns the events of a pod that is about to enter this state.
pub(crate) fn pod_events(pod: &Cached<PodView>, next: &PodNow) -> Vec<PodEvent> {
    let mut events = Vec::new();
    let policy = Restarts::of(&pod.spec.restart_policy);
    let (spec, status) = (&pod.spec, &pod.status);
    let all = [
        (&spec.init_containers, &status.init_container_statuses, &next.init),
        (&spec.containers, &status.container_statuses, &next.main),
        (&spec.ephemeral_containers, &status.ephemeral_container_statuses, &next.ephemeral),
    ];
    for (containers, statuses, container_states) in all {
        for (container, container_state) in containers.iter().zip(container_states) {
            let before = statuses.iter().find(|status| status.name == container.name);
            let stops = next.failure.is_some() || pod.meta().is_being_deleted();
            let restarts = container.is_sidecar() || policy != Restarts::Never;
            about(container, pod, before, container_state, ContainerOutlook { stops, restarts }, &mut events);
        }
    }
    if let Some((reason, message)) = &next.failure
        && &**reason == "DeadlineExceeded"
    {
        events.push(normal("DeadlineExceeded", message.to_string()));
    }
    events
}

/// The outlook of a container.
#[derive(Clone, Copy)]
struct ContainerOutlook {
    /// Its pod is stopping.
    stops: bool,
    /// It is restarted when it exits.
    restarts: bool,
}

fn about(
    container: &Container,
    pod: &Cached<PodView>,
    before: Option<&ContainerStatus>,
    after: &ContainerState,
    outlook: ContainerOutlook,
    events: &mut Vec<PodEvent>,
) {
    let (name, image) = (&container.name, &container.image);
    if let Some(kind) = after.failed {
        let how = kind.of(container).map_or("", probe_failure);
        events.push(warning("Unhealthy", format!("{} probe failed: {how}", kind.title())));
        if kind != ProbeKind::Readiness {
            let then = if outlook.restarts { ", will be restarted" } else { "" };
            events.push(normal("Killing", format!("Container {name} failed {} probe{then}", kind.name())));
        }
    }
    let ran = before.is_some_and(|status| status.state.running.is_some());
    let restarted = before.is_some_and(|status| status.restart_count < after.restarts);
    if ran && restarted && after.is_running() {
        events.push(normal("Killing", format!("Container {name} resize requires restart")));
    }
    let waited_for = |reason: &str| {
        let waiting = before.and_then(|status| status.state.waiting.as_ref());
        waiting.is_some_and(|waiting| &*waiting.reason == reason)
    };
    match &after.state {
        State::Running { .. } if !ran || restarted => {
            if waited_for(PULL_BACK_OFF) || waited_for(PULL_FAILED) {
                events.push(normal("Pulling", format!("Pulling image {image:?}")));
                let pulled = "in 0s (0s including waiting). Image size: 0 bytes.";
                events.push(normal("Pulled", format!("Successfully pulled image {image:?} {pulled}")));
            } else {
                let message = format!("Container image {image:?} already present on machine");
                events.push(normal("Pulled", message));
            }
            events.push(normal("Created", format!("Created container: {name}")));
            events.push(normal("Started", format!("Started container {name}")));
        }
        State::Terminated(_) if ran && outlook.stops => {
            events.push(normal("Killing", format!("Stopping container {name}")));
        }
        State::Waiting { reason, .. } if **reason == *CRASH_LOOP && !waited_for(CRASH_LOOP) => {
            let (key, uid) = (pod.key(), &pod.meta().uid);
            let pod = format!("{}_{}({uid})", key.name(), key.namespace().unwrap_or_default());
            let message = format!("Back-off restarting failed container {name} in pod {pod}");
            events.push(warning("BackOff", message));
        }
        State::Waiting { reason, message } if **reason == *PULL_FAILED && !waited_for(PULL_FAILED) => {
            events.push(normal("Pulling", format!("Pulling image {image:?}")));
            events.push(warning("Failed", format!("Failed to pull image {image:?}: {message}")));
            events.push(warning("Failed", format!("Error: {PULL_FAILED}")));
        }
        State::Waiting { reason, .. } if **reason == *PULL_BACK_OFF && !waited_for(PULL_BACK_OFF) => {
            events.push(normal("BackOff", format!("Back-off pulling image {image:?}")));
            events.push(warning("Failed", format!("Error: {PULL_BACK_OFF}")));
        }
        State::Waiting { reason, message } if **reason == *NEVER_PULLED && !waited_for(NEVER_PULLED) => {
            events.push(warning(NEVER_PULLED, message.to_string()));
            events.push(warning("Failed", format!("Error: {NEVER_PULLED}")));
        }
        State::Waiting { reason, message } if **reason == *INVALID_NAME && !waited_for(INVALID_NAME) => {
            events.push(warning("InspectFailed", message.to_string()));
            events.push(warning("Failed", format!("Error: {INVALID_NAME}")));
        }
        _ => {}
    }
}

/// Returns the failure message of a probe of this type.
fn probe_failure(probe: &Probe) -> &'static str {
    match probe.probe_type {
        ProbeType::Http => "HTTP probe failed with statuscode: 503",
        ProbeType::Tcp => "dial tcp: connect: connection refused",
        ProbeType::Grpc => "service unhealthy (responded with \"NOT_SERVING\")",
        ProbeType::Command if probe.is_bound_to_fail => "",
        ProbeType::Command => "simulated failure",
    }
}

fn normal(reason: &'static str, message: String) -> PodEvent {
    PodEvent { event_type: EventType::Normal, reason, message }
}

fn warning(reason: &'static str, message: String) -> PodEvent {
    PodEvent { event_type: EventType::Warning, reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn normal_events_are_rate_limited() {
        let clock = setpoint::Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let mut limit = EventLimit::default();
        let mut recorded =
            |clock: &setpoint::Clock| (0..1000).filter(|_| limit.has_room(clock.instant())).count();
        assert_eq!(recorded(&clock), 100);
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(recorded(&clock), 50);
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(recorded(&clock), 100);
    }
}
