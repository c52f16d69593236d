//! The life of one container. Pure.
//!
//! ```text
//!  Waiting ──► Running ──exit──► Terminated ──restart policy allows, first time almost at once──► Running
//!     ▲                              │
//!     └── CrashLoopBackOff ◄─────────┘ from the second time on: after 10 s, doubling to 5 min
//! ```
//!
//! A container that fails its startup or liveness probe is killed, and then continues like one that exited. One whose
//! image cannot be pulled waits (images.rs).

use std::time::Duration;

use jiff::Timestamp;

use crate::behaviour::Behaviour;
use crate::images::{INVALID_NAME, Image, NEVER_PULLED, PULL_BACK_OFF, PULL_FAILED, attempts};
use crate::probes::{ProbeKind, Prospects};
use crate::view::{Container, ContainerStatus, Terminated};

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerState {
    pub(crate) state: State,
    pub(crate) last: Option<Exit>,
    pub(crate) restarts: u32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    /// The probe that has just failed.
    pub(crate) failed: Option<ProbeKind>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting { reason: Box<str>, message: Box<str> },
    Running { since: Timestamp },
    Terminated(Exit),
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    /// The termination message.
    pub(crate) message: Box<str>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
}

pub(crate) const CRASH_LOOP: &str = "CrashLoopBackOff";
/// The exit code of a killed container.
pub(crate) const KILLED: i32 = 137;

/// A container that ran for this long restarts with the shortest backoff.
const STEADY_AFTER: Duration = Duration::from_secs(600);
/// How long a failed pull shows before the backoff does.
const PULL_SHOWS: Duration = Duration::from_secs(1);
/// The kubelet's first restart is immediate. Here it is delayed so that the exit can be seen.
const FIRST_RESTART: Duration = Duration::from_secs(1);
const MIN_BACK_OFF: Duration = Duration::from_secs(10);
const MAX_BACK_OFF: Duration = Duration::from_secs(300);

/// The inputs that determine a container's life.
pub(crate) struct ContainerInputs<'a> {
    pub(crate) container: &'a Container,
    pub(crate) behaviour: &'a Behaviour,
    pub(crate) image: &'a dyn Fn() -> Image,
    /// After which exits it is restarted.
    pub(crate) restarts: Restarts,
    /// When the pod allows it to start.
    pub(crate) may_start: Timestamp,
    /// The pod's name in messages.
    pub(crate) pod: &'a dyn std::fmt::Display,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restarts {
    Always,
    OnFailure,
    Never,
}

impl Restarts {
    pub(crate) fn of(policy: &str) -> Self {
        match policy {
            "Never" => Self::Never,
            "OnFailure" => Self::OnFailure,
            _ => Self::Always,
        }
    }

    pub(crate) fn after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl ContainerState {
    /// Reads the state from the pod's status.
    pub(crate) fn of(status: &ContainerStatus) -> Self {
        let state = match &status.state {
            crate::view::State { running: Some(running), .. } => {
                State::Running { since: running.started_at.unwrap_or(Timestamp::UNIX_EPOCH) }
            }
            crate::view::State { terminated: Some(terminated), .. } => {
                State::Terminated(Exit::of(terminated))
            }
            other => {
                let (reason, message) = other.waiting.as_ref().map_or(("", ""), |w| (&w.reason, &w.message));
                State::Waiting { reason: reason.into(), message: message.into() }
            }
        };
        Self {
            state,
            last: status.last_state.terminated.as_deref().map(Exit::of),
            restarts: status.restart_count,
            ready: status.ready,
            started: status.started,
            failed: None,
        }
    }

    pub(crate) fn waiting(reason: &str, message: &str) -> Self {
        let state = State::Waiting { reason: reason.into(), message: message.into() };
        Self { state, last: None, restarts: 0, ready: false, started: false, failed: None }
    }

    /// Whether it has ever run.
    pub(crate) fn has_run(&self) -> bool {
        self.last.is_some() || !matches!(self.state, State::Waiting { .. })
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Returns how it ended, if it has and is not about to restart.
    pub(crate) fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Terminated(exit) => Some(exit),
            _ => None,
        }
    }

    /// Returns the container ended.
    pub(crate) fn ended(mut self, code: i32, now: Timestamp) -> Self {
        let started = match self.state {
            State::Running { since } => Some(since),
            _ => None,
        };
        if self.exit().is_none() {
            let message = Box::default();
            self.state = State::Terminated(Exit { code, message, started, finished: now });
        }
        (self.ready, self.started) = (false, false);
        self
    }

    /// Returns the container restarted immediately.
    pub(crate) fn restarted_now(mut self, now: Timestamp) -> Self {
        if let State::Running { since } = self.state {
            self.last = Some(Exit::killed(since, now));
            self.restarts += 1;
            self.state = State::Running { since: now };
        }
        self
    }

    /// Returns the state at `now`, starting the container if it has not started, and when the state changes next.
    pub(crate) fn advanced(self, life: &ContainerInputs<'_>, now: Timestamp) -> (Self, Option<Timestamp>) {
        match &self.state {
            State::Running { since } => {
                let since = *since;
                self.while_running(since, life, now)
            }
            State::Terminated(exit) if life.restarts.after(exit.code) => {
                let (exit, due) = (exit.clone(), exit.finished + delay(self.restarts, exit));
                self.restarted(exit, due, life, now)
            }
            State::Terminated(_) => (self, None),
            State::Waiting { reason, .. } if **reason == *CRASH_LOOP => match self.last.clone() {
                Some(exit) => {
                    let due = exit.finished + delay(self.restarts, &exit);
                    self.restarted(exit, due, life, now)
                }
                None => (self.run(life, now), None),
            },
            State::Waiting { .. } => self.with_image(life, now),
        }
    }

    /// Starts the container if its image can be used.
    fn with_image(self, life: &ContainerInputs<'_>, now: Timestamp) -> (Self, Option<Timestamp>) {
        let waited = Duration::try_from(now.duration_since(life.may_start)).unwrap_or_default();
        let (last, next) = attempts(waited);
        let (last, next) = (life.may_start + last, life.may_start + next);
        let has_just_tried = now < last + PULL_SHOWS;
        let was_pulling = matches!(&self.state, State::Waiting { reason, .. } if [PULL_FAILED, PULL_BACK_OFF].contains(&&**reason));
        match (life.image)() {
            // The image may be there by now, but the kubelet looks only when it tries again.
            Image::Present if was_pulling && !has_just_tried => (self, Some(next)),
            Image::Present => (self.run(life, now), None),
            Image::NotPresent(why) => (Self::waiting(NEVER_PULLED, &why), None),
            Image::Invalid(why) => (Self::waiting(INVALID_NAME, &why), None),
            Image::Unpullable(why) if has_just_tried || !was_pulling => {
                (Self::waiting(PULL_FAILED, &why), Some(last.max(now) + PULL_SHOWS))
            }
            Image::Unpullable(why) => {
                let why = format!("Back-off pulling image {:?}: {PULL_FAILED}: {why}", life.container.image);
                (Self::waiting(PULL_BACK_OFF, &why), Some(next))
            }
        }
    }

    fn run(self, life: &ContainerInputs<'_>, now: Timestamp) -> Self {
        let prospects = Prospects::of(life.container, life.behaviour, now, self.restarts);
        let (started, ready) = (prospects.is_started(now), prospects.is_ready(now));
        Self { state: State::Running { since: now }, ready, started, ..self }
    }

    fn restarted(
        self,
        exit: Exit,
        due: Timestamp,
        life: &ContainerInputs<'_>,
        now: Timestamp,
    ) -> (Self, Option<Timestamp>) {
        if now < due {
            return (self, Some(due));
        }
        let again = Self { last: Some(exit), restarts: self.restarts + 1, failed: None, ..self };
        (again.run(life, now), None)
    }

    fn while_running(
        mut self,
        since: Timestamp,
        life: &ContainerInputs<'_>,
        now: Timestamp,
    ) -> (Self, Option<Timestamp>) {
        let exits = life.behaviour.exits.as_ref().filter(|exit| exit.happens_after(self.restarts));
        if let Some(exit) = exits.filter(|exit| now >= since + exit.after) {
            let (code, message) = (exit.code, exit.message.clone());
            return self.exited(Exit { code, message, started: Some(since), finished: now }, life);
        }
        let prospects = Prospects::of(life.container, life.behaviour, since, self.restarts);
        if let Some((_, probe)) = prospects.killed.filter(|(at, _)| now >= *at) {
            self.failed = Some(probe);
            return self.exited(Exit::killed(since, now), life);
        }
        let was_ready = self.ready;
        self.started = prospects.is_started(now);
        self.ready = prospects.is_ready(now);
        self.failed = (was_ready && prospects.is_found_unready(now)).then_some(ProbeKind::Readiness);
        let changes = prospects.changes().chain(exits.map(|exit| since + exit.after));
        (self, changes.filter(|at| *at > now).min())
    }

    /// Handles an exit. From the second one on there is a backoff, reported as CrashLoopBackOff.
    fn exited(mut self, exit: Exit, life: &ContainerInputs<'_>) -> (Self, Option<Timestamp>) {
        (self.ready, self.started) = (false, false);
        let wait = delay(self.restarts, &exit);
        let due = life.restarts.after(exit.code).then(|| exit.finished + wait);
        if due.is_some() && wait > FIRST_RESTART {
            let (wait, container, pod) = (shown(wait), &life.container.name, life.pod);
            let message = format!("back-off {wait} restarting failed container={container} pod={pod}");
            self.state = State::Waiting { reason: CRASH_LOOP.into(), message: message.into() };
            self.last = Some(exit);
        } else {
            self.state = State::Terminated(exit);
        }
        (self, due)
    }
}

impl Exit {
    /// The exit of a killed container.
    fn killed(since: Timestamp, now: Timestamp) -> Self {
        Self { code: KILLED, started: Some(since), finished: now, message: Box::default() }
    }

    fn of(terminated: &Terminated) -> Self {
        let finished = terminated.finished_at.unwrap_or(Timestamp::UNIX_EPOCH);
        let message = terminated.message.clone();
        Self { code: terminated.exit_code, message, started: terminated.started_at, finished }
    }

    pub(crate) fn reason(&self) -> &'static str {
        if self.code == 0 { "Completed" } else { "Error" }
    }

    fn ran_for(&self) -> Duration {
        let ran = self.started.map(|started| self.finished.duration_since(started));
        ran.and_then(|ran| Duration::try_from(ran).ok()).unwrap_or_default()
    }
}

/// Returns the restart delay after this many restarts.
fn delay(restarts: u32, exit: &Exit) -> Duration {
    match restarts {
        0 => FIRST_RESTART,
        _ if exit.ran_for() >= STEADY_AFTER => FIRST_RESTART,
        _ => MIN_BACK_OFF.saturating_mul(1 << (restarts - 1).min(5)).min(MAX_BACK_OFF),
    }
}

/// Formats a duration like v1.34: `40s`, `1m20s`.
fn shown(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2025-01-01T01:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().expect("a time")
    }

    fn advanced(
        container_state: ContainerState,
        annotations: &[(&str, &str)],
        restarts: Restarts,
        at: i64,
    ) -> ContainerState {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let container = Container { name: "c".into(), image: "i".into(), ..Container::default() };
        let behaviour = Behaviour::of_main(&annotations, &container, None, true);
        let missing = behaviour.never_start;
        let image = || if missing { Image::Unpullable("missing".into()) } else { Image::Present };
        let life = ContainerInputs {
            container: &container,
            behaviour: &behaviour,
            image: &image,
            restarts,
            may_start: now(),
            pod: &"p_ns(u)",
        };
        container_state.advanced(&life, now() + Duration::from_secs(at.unsigned_abs())).0
    }

    fn running(restarts: u32) -> ContainerState {
        let run = ContainerState::waiting("", "");
        ContainerState { state: State::Running { since: now() }, ready: true, started: true, restarts, ..run }
    }

    const EXITS: &[(&str, &str)] =
        &[("node.setpoint.dev/run-for", "5s"), ("node.setpoint.dev/exit-code", "3")];

    #[test]
    fn an_exit_is_final_or_a_restart_as_the_policy_says() {
        let check = |restarts, later: i64, expected: &str| {
            let exited = advanced(running(0), EXITS, restarts, 5);
            assert_eq!(exited.exit().map(|exit| exit.code), Some(3));
            let then = advanced(exited, EXITS, restarts, later);
            let shown = if then.is_running() { "runs" } else { "stays" };
            assert_eq!(
                (shown, then.restarts),
                (expected, u32::from(expected == "runs")),
                "{restarts:?} {later}"
            );
        };
        check(Restarts::Always, 5, "stays");
        check(Restarts::Always, 6, "runs");
        check(Restarts::OnFailure, 6, "runs");
        check(Restarts::Never, 600, "stays");
    }

    #[test]
    fn the_back_off_doubles_to_five_minutes_and_resets_after_a_steady_run() {
        let check = |restarts: u32, ran: i64, expected: u64| {
            let exit = Exit {
                code: 1,
                message: Box::default(),
                started: Some(now() - Duration::from_secs(ran.unsigned_abs())),
                finished: now(),
            };
            assert_eq!(delay(restarts, &exit), Duration::from_secs(expected), "{restarts} after {ran}");
        };
        check(0, 1, 1);
        check(1, 1, 10);
        check(2, 1, 20);
        check(4, 1, 80);
        check(6, 1, 300);
        check(60, 1, 300);
        check(6, 600, 1);
    }

    #[test]
    fn a_container_that_crashes_again_waits_and_reports_its_back_off() {
        let crashed = advanced(running(4), EXITS, Restarts::Always, 5);
        let State::Waiting { reason, message } = &crashed.state else { panic!("it waits: {crashed:?}") };
        assert_eq!(&**reason, "CrashLoopBackOff");
        assert_eq!(&**message, "back-off 1m20s restarting failed container=c pod=p_ns(u)");
        assert_eq!((crashed.restarts, crashed.last.as_ref().map(|exit| exit.code)), (4, Some(3)));
        assert_eq!(advanced(crashed.clone(), EXITS, Restarts::Always, 84), crashed);
        assert_eq!(advanced(crashed, EXITS, Restarts::Always, 85).restarts, 5);
    }

    #[test]
    fn a_container_that_fails_its_liveness_probe_is_killed_and_restarted() {
        let failing = &[("node.setpoint.dev/failing-probes", "liveness")];
        let annotations = failing.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let behaviour = Behaviour::of_main(&annotations, &Container::default(), None, true);
        let probe = crate::view::Probe { period_seconds: 10, failure_threshold: 3, ..Default::default() };
        let container =
            Container { name: "c".into(), liveness_probe: Some(Box::new(probe)), ..Container::default() };
        let life = ContainerInputs {
            container: &container,
            behaviour: &behaviour,
            image: &|| Image::Present,
            restarts: Restarts::Always,
            may_start: now(),
            pod: &"p_ns(u)",
        };
        let at = |container_state: ContainerState, second: u64| {
            container_state.advanced(&life, now() + Duration::from_secs(second))
        };
        let (runs, change) = at(running(0), 19);
        assert!(runs.is_running() && runs.ready && change == Some(now() + Duration::from_secs(20)));
        let (killed, _) = at(runs, 20);
        assert_eq!(
            (killed.exit().map(|exit| exit.code), killed.failed),
            (Some(137), Some(ProbeKind::Liveness))
        );
        let (again, _) = at(killed, 21);
        assert_eq!((again.is_running(), again.restarts, again.failed), (true, 1, None));
    }

    #[test]
    fn an_image_pull_is_retried_with_back_off() {
        let missing = &[("node.setpoint.dev/never-start", "true")];
        let reason = |container_state: &ContainerState| match &container_state.state {
            State::Waiting { reason, .. } => reason.to_string(),
            other => format!("{other:?}"),
        };
        let at = |container_state: ContainerState, second| {
            advanced(container_state, missing, Restarts::Always, second)
        };
        let failed = at(ContainerState::waiting("ContainerCreating", ""), 0);
        assert_eq!(reason(&failed), "ErrImagePull");
        let waits = at(failed, 1);
        assert_eq!(reason(&waits), "ImagePullBackOff");
        assert_eq!(at(waits.clone(), 9), waits);
        let failed = at(waits, 10);
        assert_eq!(reason(&failed), "ErrImagePull");
        let waits = at(failed, 11);
        assert_eq!(
            (reason(&waits), reason(&at(waits.clone(), 29))),
            ("ImagePullBackOff".into(), "ImagePullBackOff".into())
        );
        let there = |second| advanced(waits.clone(), &[], Restarts::Always, second);
        assert!(!there(29).is_running() && there(30).is_running(), "it is tried again when it is due");
    }
}
