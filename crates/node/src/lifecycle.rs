//! The state of a pod, and what its node does next. Pure.
//!
//! ```text
//!  accepted ──start-after──► init containers, one after the other ──► containers ──exit──► Succeeded | Failed
//!     │                          (sidecars keep running)               ▲      │
//!     └─ rejected: Failed                                              └──────┘ restart policy (container.rs)
//!  any ──deleted, terminate-after──► stopped ──► removed
//! ```
//!
//! The state is read from the pod's own status, never kept in memory: a restarted agent continues.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::Metadata;

use crate::behaviour::{Behaviour, PodBehaviour, annotation};
use crate::container::{ContainerInputs, ContainerState, KILLED, Restarts};
use crate::images::{Image, image, patterns, pull_error};
use crate::resize::{PENDING, Refused, Resize};
use crate::runtime::{Fate, FatesOfPod};
use crate::view::{Container, ContainerStatus, PodView};

/// The node's next action for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until the pod changes.
    Rest,
    /// Nothing, for this long.
    Wait(Duration),
    /// Write this status.
    Write(Box<PodNow>),
    /// The pod has stopped: delete the object.
    Remove,
}

/// The state of a pod to be written to its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodNow {
    pub(crate) phase: &'static str,
    /// Why the pod failed as a whole.
    pub(crate) failure: Option<(Box<str>, Box<str>)>,
    /// Whether its network is set up.
    pub(crate) has_network: bool,
    pub(crate) init: Vec<ContainerState>,
    pub(crate) main: Vec<ContainerState>,
    pub(crate) ephemeral: Vec<ContainerState>,
    /// Why a resize is pending.
    pub(crate) refused: Option<Refused>,
}

/// External conditions of a pod.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances<'a> {
    pub(crate) obstacle: Option<&'a Obstacle>,
    /// The outcome of a resize.
    pub(crate) resize: Option<&'a Resize>,
    /// How the runs of containers with a command end.
    pub(crate) fates: Option<&'a FatesOfPod>,
    /// Patterns of images that no node can pull.
    pub(crate) missing_images: &'a [String],
}

/// An obstacle to creating containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Volumes are missing.
    Volumes,
    /// Configuration of containers is missing: container and reason.
    Config(Vec<(Box<str>, Box<str>)>),
}

/// Returns the next step for a pod.
pub(crate) fn next(meta: &Metadata, pod: &PodView, circumstances: Circumstances<'_>, now: Timestamp) -> Step {
    let finished = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    let behaviour = PodBehaviour::of(pod);
    match (meta.deletion_timestamp, finished) {
        (Some(_), true) => Step::Remove,
        (Some(deadline), false) => stop(meta, deadline, pod, &behaviour, now),
        (None, true) => Step::Rest,
        (None, false) => {
            let (next, change) = live(meta, pod, &behaviour, circumstances, now);
            let step = match shows(meta, pod, &next) {
                false => Step::Write(Box::new(next)),
                true => change.map_or(Step::Rest, |at| wait_or(at, now, || Step::Rest)),
            };
            within_deadline(pod, step, now)
        }
    }
}

/// Returns the state of a pod that the node rejects.
pub(crate) fn rejected(reason: &str, message: &str) -> PodNow {
    PodNow {
        phase: "Failed",
        failure: Some((reason.into(), message.into())),
        has_network: false,
        init: Vec::new(),
        main: Vec::new(),
        ephemeral: Vec::new(),
        refused: None,
    }
}

/// Stops a deleted pod after its termination time, at most its grace period.
fn stop(
    meta: &Metadata,
    deadline: Timestamp,
    pod: &PodView,
    behaviour: &PodBehaviour,
    now: Timestamp,
) -> Step {
    let grace = Duration::from_secs(meta.deletion_grace_period_seconds.unwrap_or(0).max(0).unsigned_abs());
    let asked_at = deadline - grace;
    wait_or(asked_at + behaviour.terminate_after.min(grace), now, || match pod.status.start_time {
        None => Step::Remove,
        Some(_) => Step::Write(Box::new(ended(pod, None, now))),
    })
}

/// Returns `step`, unless the pod has exceeded its active deadline.
fn within_deadline(pod: &PodView, step: Step, now: Timestamp) -> Step {
    let (Some(seconds), Some(started)) = (pod.spec.active_deadline_seconds, pod.status.start_time) else {
        return step;
    };
    let over = wait_or(started + Duration::from_secs(seconds), now, || {
        let why = "Pod was active on the node longer than the specified deadline";
        Step::Write(Box::new(ended(pod, Some(("DeadlineExceeded", why)), now)))
    });
    match (step, over) {
        (Step::Wait(next), Step::Wait(left)) => Step::Wait(next.min(left)),
        (Step::Rest, Step::Wait(left)) => Step::Wait(left),
        (step, Step::Wait(_)) => step,
        (_, over) => over,
    }
}

/// Returns the pod with all its containers stopped.
pub(crate) fn ended(pod: &PodView, failure: Option<(&str, &str)>, now: Timestamp) -> PodNow {
    let ended = |containers, statuses| {
        let container_states = container_states(containers, statuses, "");
        container_states
            .into_iter()
            .map(|container_state: ContainerState| container_state.ended(KILLED, now))
            .collect()
    };
    PodNow {
        phase: "Failed",
        failure: failure.map(|(reason, message)| (reason.into(), message.into())),
        has_network: false,
        init: ended(&pod.spec.init_containers, &pod.status.init_container_statuses),
        main: ended(&pod.spec.containers, &pod.status.container_statuses),
        ephemeral: ended(&pod.spec.ephemeral_containers, &pod.status.ephemeral_container_statuses),
        refused: None,
    }
}

/// Returns the container states from the status, in spec order.
fn container_states(
    containers: &[Container],
    statuses: &[ContainerStatus],
    waits: &str,
) -> Vec<ContainerState> {
    let of = |(index, container): (usize, &Container)| {
        let at_its_place = statuses.get(index).filter(|status| status.name == container.name);
        let status = at_its_place.or_else(|| statuses.iter().find(|status| status.name == container.name));
        status.map_or_else(|| ContainerState::waiting(waits, ""), ContainerState::of)
    };
    containers.iter().enumerate().map(of).collect()
}

/// Returns the current state of a live pod, and when it changes next.
fn live(
    meta: &Metadata,
    pod: &PodView,
    behaviour: &PodBehaviour,
    circumstances: Circumstances<'_>,
    now: Timestamp,
) -> (PodNow, Option<Timestamp>) {
    let resize = circumstances.resize;
    let waits = if pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let mut next = PodNow {
        phase: "Pending",
        failure: None,
        has_network: false,
        init: container_states(&pod.spec.init_containers, &pod.status.init_container_statuses, waits),
        main: container_states(&pod.spec.containers, &pod.status.container_statuses, waits),
        ephemeral: Vec::new(),
        refused: None,
    };
    let may_start = pod.status.start_time.unwrap_or(now) + behaviour.start_after;
    if may_start > now {
        return (next, Some(may_start));
    }
    if circumstances.obstacle == Some(&Obstacle::Volumes) {
        return (next, None);
    }
    next.has_network = true;
    let mut lives = PodInputs { meta, pod, circumstances, may_start, now, change: None };
    if lives.initialize(&mut next) {
        lives.run(&mut next);
    }
    match resize {
        Some(Resize::Refused(refused)) => next.refused = Some(refused.clone()),
        Some(Resize::Made { restarts }) => next.restart(pod, restarts, now),
        None => {}
    }
    next.phase = phase(pod, &next);
    if matches!(next.phase, "Succeeded" | "Failed") {
        // Sidecars end with the main containers.
        next.init = next
            .init
            .into_iter()
            .map(|container_state| match container_state.is_running() {
                true => container_state.ended(0, now),
                false => container_state,
            })
            .collect();
    } else {
        let shown = &pod.status.ephemeral_container_statuses;
        next.ephemeral = container_states(&pod.spec.ephemeral_containers, shown, waits);
        let ephemeral = pod.spec.ephemeral_containers.iter().zip(&mut next.ephemeral);
        ephemeral.for_each(|(container, container_state)| lives.debug(container, container_state));
    }
    (next, lives.change)
}

/// The inputs that determine the lives of a pod's containers.
struct PodInputs<'a> {
    meta: &'a Metadata,
    pod: &'a PodView,
    circumstances: Circumstances<'a>,
    /// When the next container may start.
    may_start: Timestamp,
    now: Timestamp,
    /// When one of them changes next.
    change: Option<Timestamp>,
}

impl PodInputs<'_> {
    /// Runs init containers one after the other. Returns true if the last one is done.
    fn initialize(&mut self, next: &mut PodNow) -> bool {
        let past = next.main.iter().any(ContainerState::has_run);
        for (container, container_state) in self.pod.spec.init_containers.iter().zip(&mut next.init) {
            if container.is_sidecar() {
                let behaviour = self.init_behaviour(container);
                self.advance(container, &behaviour, Restarts::Always, container_state);
                if !past && !container_state.started {
                    return false;
                }
            } else if !past && container_state.exit().is_none_or(|exit| exit.code != 0) {
                let behaviour = self.init_behaviour(container);
                // An init container that has succeeded is not restarted, whatever the policy.
                let restarts = match Restarts::of(&self.pod.spec.restart_policy) {
                    Restarts::Never => Restarts::Never,
                    _ => Restarts::OnFailure,
                };
                self.advance(container, &behaviour, restarts, container_state);
                // It is ready when it has completed.
                container_state.ready = container_state.exit().is_some_and(|exit| exit.code == 0);
                if !container_state.ready {
                    return false;
                }
            }
            if let Some(exit) = container_state.exit() {
                self.may_start = self.may_start.max(exit.finished);
            }
        }
        true
    }

    fn init_behaviour(&self, container: &Container) -> Behaviour {
        Behaviour::of_init(&self.pod.metadata.annotations, container, self.fate(container))
    }

    /// Returns how this run of a container ends, if it has a command.
    fn fate(&self, container: &Container) -> Option<&Fate> {
        self.circumstances.fates?.get(container.name.as_str())
    }

    fn run(&mut self, next: &mut PodNow) {
        let restarts = Restarts::of(&self.pod.spec.restart_policy);
        let is_always_restarted = restarts == Restarts::Always;
        for (container, container_state) in self.pod.spec.containers.iter().zip(&mut next.main) {
            let annotations = &self.pod.metadata.annotations;
            let behaviour =
                Behaviour::of_main(annotations, container, self.fate(container), is_always_restarted);
            self.advance(container, &behaviour, restarts, container_state);
        }
    }

    fn advance(
        &mut self,
        container: &Container,
        behaviour: &Behaviour,
        restarts: Restarts,
        container_state: &mut ContainerState,
    ) {
        if let (Some(Obstacle::Config(missing)), false) =
            (self.circumstances.obstacle, container_state.has_run())
            && let Some((_, why)) = missing.iter().find(|(name, _)| **name == *container.name)
        {
            *container_state = ContainerState::waiting("CreateContainerConfigError", why);
            return;
        }
        let pod = PodName(self.meta);
        let image = || self.image(container, behaviour);
        let life = ContainerInputs {
            container,
            behaviour,
            image: &image,
            restarts,
            may_start: self.may_start,
            pod: &pod,
        };
        let before = std::mem::replace(container_state, ContainerState::waiting("", ""));
        let (after, change) = before.advanced(&life, self.now);
        *container_state = after;
        self.change = self.change.into_iter().chain(change).min();
    }

    /// Returns whether a container's image can be used.
    fn image(&self, container: &Container, behaviour: &Behaviour) -> Image {
        if behaviour.never_start {
            return Image::Unpullable(pull_error(&container.image));
        }
        let annotated = self.pod.metadata.annotations.get(annotation::MISSING_IMAGES);
        let annotated = annotated.iter().flat_map(|annotated| patterns(annotated));
        let missing = self.circumstances.missing_images.iter().map(String::as_str).chain(annotated);
        image(&container.image, container.is_never_pulled, missing)
    }

    /// Runs an ephemeral container until its program or the pod ends. It is never ready.
    fn debug(&mut self, container: &Container, container_state: &mut ContainerState) {
        let annotations = &self.pod.metadata.annotations;
        let behaviour = Behaviour::of_ephemeral(annotations, container, self.fate(container));
        self.advance(container, &behaviour, Restarts::Never, container_state);
        (container_state.ready, container_state.started) = (false, false);
    }
}

/// Formats pods like the kubelet's messages.
struct PodName<'a>(&'a Metadata);

impl std::fmt::Display for PodName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Metadata { name, namespace, uid, .. } = self.0;
        write!(f, "{name}_{}({uid})", namespace.as_deref().unwrap_or_default())
    }
}

/// Returns the phase of a pod with these container states.
fn phase(pod: &PodView, next: &PodNow) -> &'static str {
    let restarts = Restarts::of(&pod.spec.restart_policy);
    let failed = |container_state: &ContainerState| container_state.exit().is_some_and(|exit| exit.code != 0);
    let past = next.main.iter().any(ContainerState::has_run);
    if !past {
        let gave_up = restarts == Restarts::Never && next.init.iter().any(failed);
        return if gave_up { "Failed" } else { "Pending" };
    }
    if next.main.iter().any(|container_state| !container_state.has_run()) {
        return "Pending";
    }
    let over = |container_state: &ContainerState| {
        container_state.exit().is_some_and(|exit| !restarts.after(exit.code))
    };
    if !next.main.iter().all(over) {
        return "Running";
    }
    if next.main.iter().any(failed) { "Failed" } else { "Succeeded" }
}

/// Whether the status already shows this state.
fn shows(meta: &Metadata, pod: &PodView, next: &PodNow) -> bool {
    let same = |container_states: &[ContainerState], statuses: &[ContainerStatus]| {
        container_states.len() == statuses.len()
            && container_states
                .iter()
                .zip(statuses)
                .all(|(container_state, status)| *container_state == ContainerState::of(status))
    };
    let status = &pod.status;
    status.start_time.is_some()
        && status.phase == next.phase
        && status.observed_generation == meta.generation
        && same(&next.init, &status.init_container_statuses)
        && same(&next.main, &status.container_statuses)
        && same(&next.ephemeral, &status.ephemeral_container_statuses)
        && pod.is_true("Ready") == next.is_ready(pod)
        && pod.is_true(PENDING) == next.refused.is_some()
}

impl PodNow {
    /// Restarts containers that cannot be resized in place.
    fn restart(&mut self, pod: &PodView, names: &[Box<str>], now: Timestamp) {
        let init = pod.spec.init_containers.iter().zip(&mut self.init);
        for (container, container_state) in init.chain(pod.spec.containers.iter().zip(&mut self.main)) {
            if names.iter().any(|name| **name == *container.name) {
                *container_state = container_state.clone().restarted_now(now);
            }
        }
    }

    /// Whether all containers that have to be ready are.
    pub(crate) fn has_ready_containers(&self, pod: &PodView) -> bool {
        let mut sidecars =
            pod.spec.init_containers.iter().zip(&self.init).filter(|(init, _)| init.is_sidecar());
        self.phase == "Running"
            && self.main.iter().all(|container_state| container_state.ready)
            && sidecars.all(|(_, container_state)| container_state.ready)
    }

    pub(crate) fn is_ready(&self, pod: &PodView) -> bool {
        let open = |gate: &crate::view::ReadinessGate| pod.is_true(&gate.condition_type);
        self.has_ready_containers(pod) && pod.spec.readiness_gates.iter().all(open)
    }
}

fn wait_or(at: Timestamp, now: Timestamp, then: impl FnOnce() -> Step) -> Step {
    match Duration::try_from(at.duration_since(now)) {
        Ok(left) if !left.is_zero() => Step::Wait(left),
        _ => then(),
    }
}

#[cfg(test)]
mod tests;
