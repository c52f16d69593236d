//! When probes fail, according to annotations. Pure.
//!
//! A probe runs first after its initial delay, not before the container has started, and then once per period. It takes
//! `failureThreshold` failures in a row to fail, and `successThreshold` successes in a row to recover.

use std::time::Duration;

use jiff::Timestamp;

use crate::behaviour::Behaviour;
use crate::view::{Container, Probe};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// Its name at the beginning of kubelet messages.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    /// Its name in annotations.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }

    pub(crate) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_deref(),
            Self::Liveness => container.liveness_probe.as_deref(),
            Self::Readiness => container.readiness_probe.as_deref(),
        }
    }
}

/// Which probes of a container fail, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) kinds: Vec<ProbeKind>,
    /// How long after the container's start.
    pub(crate) after: Duration,
    /// For how long. `None` means forever.
    pub(crate) lasts: Option<Duration>,
    /// In how many runs of the container. `None` means all.
    pub(crate) times: Option<u32>,
}

/// A time span, possibly without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: Timestamp,
    to: Option<Timestamp>,
}

impl Span {
    fn has(&self, at: Timestamp) -> bool {
        self.from <= at && self.to.is_none_or(|to| at < to)
    }
}

impl Failing {
    /// Returns when a probe fails in a run that started at `since` after this many restarts.
    fn span(&self, kind: ProbeKind, since: Timestamp, restarts: u32) -> Option<Span> {
        let happens = self.kinds.contains(&kind) && self.times.is_none_or(|times| restarts < times);
        let from = since + self.after;
        happens.then(|| Span { from, to: self.lasts.map(|lasts| from + lasts) })
    }
}

impl Probe {
    fn period(&self) -> Duration {
        Duration::from_secs(self.period_seconds.max(1).into())
    }

    fn delay(&self) -> Duration {
        Duration::from_secs(self.initial_delay_seconds.into())
    }

    /// Returns the time from the first of several equal results until the threshold is reached.
    fn run_of(&self, results: u32) -> Duration {
        self.period() * results.max(1).saturating_sub(1)
    }

    /// Returns the first probe run at or after a time, for a probe that first runs at `first`.
    fn look_after(&self, first: Timestamp, at: Timestamp) -> Timestamp {
        let Ok(late) = Duration::try_from(at.duration_since(first)) else { return first };
        let periods = late.as_millis().div_ceil(self.period().as_millis());
        first + self.period() * u32::try_from(periods).unwrap_or(u32::MAX)
    }

    /// Returns when failures in this span cross the failure threshold and when recovery is detected. `None` if they end
    /// too early.
    fn noticed(&self, first: Timestamp, failing: Span) -> Option<Span> {
        let from = self.look_after(first, failing.from) + self.run_of(self.failure_threshold);
        let over = |to| self.look_after(first, to) + self.run_of(self.success_threshold);
        failing.has(from).then(|| Span { from, to: failing.to.map(over) })
    }
}

/// How a running container will fare with its probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prospects {
    started: Option<Timestamp>,
    ready: Option<Timestamp>,
    unready: Option<Span>,
    /// When it is killed, and by which probe.
    pub(crate) killed: Option<(Timestamp, ProbeKind)>,
}

impl Prospects {
    /// Computes the prospects of a container running since `since`.
    pub(crate) fn of(container: &Container, behaviour: &Behaviour, since: Timestamp, restarts: u32) -> Self {
        let span = |kind: ProbeKind| {
            // A command that is known to fail always fails.
            let fails = kind.of(container).is_some_and(|probe| probe.is_bound_to_fail);
            let always = || fails.then_some(Span { from: since, to: None });
            let annotated =
                behaviour.failing.as_ref().and_then(|failing| failing.span(kind, since, restarts));
            always().or(annotated)
        };
        let (started, never_started) = startup(container, since, span(ProbeKind::Startup));
        let mut prospects = Self { started, ready: None, unready: None, killed: None };
        prospects.killed = never_started.map(|at| (at, ProbeKind::Startup));
        let Some(started) = started else { return prospects };
        let first = |probe: &Probe| started.max(since + probe.delay());
        if let (Some(probe), Some(span)) = (&container.liveness_probe, span(ProbeKind::Liveness)) {
            let noticed = probe.noticed(first(probe), span);
            prospects.killed =
                prospects.killed.or(noticed.map(|noticed| (noticed.from, ProbeKind::Liveness)));
        }
        let looked = container.readiness_probe.as_ref().map_or(started, |probe| first(probe));
        prospects.ready =
            (!behaviour.never_ready).then(|| started.max(looked).max(since + behaviour.ready_after));
        if let (Some(probe), Some(span)) = (&container.readiness_probe, span(ProbeKind::Readiness)) {
            let first = first(probe);
            // A probe that fails from its first run needs no threshold: the container was never ready.
            prospects.unready = match span.has(first) {
                true => Some(Span {
                    from: since,
                    to: span.to.map(|to| probe.look_after(first, to) + probe.run_of(probe.success_threshold)),
                }),
                false => probe.noticed(first, span),
            };
        }
        prospects
    }

    pub(crate) fn is_started(&self, now: Timestamp) -> bool {
        self.started.is_some_and(|started| now >= started)
    }

    pub(crate) fn is_ready(&self, now: Timestamp) -> bool {
        self.ready.is_some_and(|ready| now >= ready) && !self.is_found_unready(now)
    }

    /// Whether its readiness probe has failed.
    pub(crate) fn is_found_unready(&self, now: Timestamp) -> bool {
        self.unready.is_some_and(|unready| unready.has(now))
    }

    /// Lists the times at which something changes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Timestamp> {
        let (from, to) =
            (self.unready.map(|unready| unready.from), self.unready.and_then(|unready| unready.to));
        [self.started, self.ready, from, to, self.killed.map(|(at, _)| at)].into_iter().flatten()
    }
}

/// Returns when a container has started, if ever, and when it is killed before that. A startup probe that does not fail
/// succeeds on its first run.
fn startup(
    container: &Container,
    since: Timestamp,
    failing: Option<Span>,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let Some(probe) = &container.startup_probe else { return (Some(since), None) };
    let first = since + probe.delay();
    let Some(failing) = failing.filter(|failing| failing.has(first)) else { return (Some(first), None) };
    let given_up = first + probe.run_of(probe.failure_threshold);
    let recovered = failing.to.map(|to| probe.look_after(first, to)).filter(|at| *at <= given_up);
    (recovered, recovered.is_none().then_some(given_up))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn since() -> Timestamp {
        "2025-01-01T00:00:00Z".parse().expect("a time")
    }

    fn container(probes: &[&str]) -> Container {
        let probe = json!({"initialDelaySeconds": 5, "periodSeconds": 10, "failureThreshold": 3, "successThreshold": 1});
        let mut container = json!({"name": "c"});
        probes.iter().for_each(|kind| container[format!("{kind}Probe")] = probe.clone());
        serde_json::from_value(container).expect("a container")
    }

    fn prospects(probes: &[&str], annotations: Value, restarts: u32) -> Prospects {
        let annotations: Vec<(String, String)> = annotations
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                (format!("node.setpoint.dev/{name}"), value.as_str().unwrap_or_default().to_owned())
            })
            .collect();
        let behaviour =
            Behaviour::of_main(&annotations.into_iter().collect(), &container(probes), None, true);
        Prospects::of(&container(probes), &behaviour, since(), restarts)
    }

    fn at(seconds: u64) -> Timestamp {
        since() + Duration::from_secs(seconds)
    }

    #[test]
    fn readiness_is_lost_after_so_many_failures_and_comes_back() {
        let check = |annotations: Value, ready: &[u64], unready: &[u64]| {
            let prospects = prospects(&["readiness"], annotations.clone(), 0);
            ready
                .iter()
                .for_each(|second| assert!(prospects.is_ready(at(*second)), "{annotations} at {second}"));
            unready
                .iter()
                .for_each(|second| assert!(!prospects.is_ready(at(*second)), "{annotations} at {second}"));
        };
        check(json!({}), &[5, 1000], &[0, 4]);
        check(json!({"failing-probes": "readiness"}), &[], &[0, 5, 1000]);
        check(json!({"failing-probes": "liveness"}), &[5, 1000], &[4]);
        // Runs at 5, 15, 25, ...: the failures at 25, 35 and 45 reach the threshold, and so does the success at 65.
        let for_a_while =
            json!({"failing-probes": "readiness", "probes-fail-after": "20s", "probes-fail-for": "40s"});
        check(for_a_while, &[5, 44, 65], &[45, 64]);
        let too_short =
            json!({"failing-probes": "readiness", "probes-fail-after": "20s", "probes-fail-for": "20s"});
        check(too_short, &[5, 45, 65], &[]);
    }

    #[test]
    fn a_container_that_fails_its_probes_is_killed() {
        let check =
            |probes: &[&str], annotations: Value, restarts: u32, expected: Option<(u64, ProbeKind)>| {
                let found = prospects(probes, annotations.clone(), restarts).killed;
                assert_eq!(found, expected.map(|(second, kind)| (at(second), kind)), "{annotations}");
            };
        let liveness = Some((25, ProbeKind::Liveness));
        check(&["liveness"], json!({}), 0, None);
        check(&["liveness"], json!({"failing-probes": "liveness"}), 0, liveness);
        check(&["readiness"], json!({"failing-probes": "liveness"}), 0, None);
        let twice = || json!({"failing-probes": "readiness, liveness", "probes-fail-times": "2"});
        check(&["liveness"], twice(), 1, liveness);
        check(&["liveness"], twice(), 2, None);
        let startup = json!({"failing-probes": "startup,liveness"});
        check(&["startup", "liveness"], startup, 0, Some((25, ProbeKind::Startup)));
        let bound_to = json!({"name": "c", "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 10, "failureThreshold": 2}});
        let container: Container = serde_json::from_value(bound_to).expect("a container");
        let found = Prospects::of(&container, &Behaviour::default(), since(), 7).killed;
        assert_eq!(found, Some((at(10), ProbeKind::Liveness)), "a command that is known to fail");
        let slow = json!({"failing-probes": "startup", "probes-fail-for": "12s"});
        check(&["startup"], slow.clone(), 0, None);
        let slow = prospects(&["startup"], slow, 0);
        assert!(!slow.is_started(at(14)) && slow.is_started(at(15)), "it has started when the probe says so");
    }
}
