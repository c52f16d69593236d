//! The simulated behavior of pods, set by annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::probes::{Failing, ProbeKind};
use crate::program::Ending;
use crate::view::{Container, PodView};

/// The annotations, by name. Durations are written `500ms`, `2s`, `1m`, or as plain seconds.
///
/// On a pod they apply to its containers, except init containers. Followed by a dot and a container name
/// (`node.setpoint.dev/exit-code.migrate`) they apply to that container of any kind.
pub mod annotation {
    /// `true` on a Node: it fails until this is changed.
    pub const FAILED: &str = "node.setpoint.dev/failed";
    /// On a Node: `memory`, `disk`, `pid`, or several separated by commas. The node has that pressure.
    pub const PRESSURE: &str = "node.setpoint.dev/pressure";
    /// How long the containers take to start.
    pub const START_AFTER: &str = "node.setpoint.dev/start-after";
    /// How long after its start a container becomes ready.
    pub const READY_AFTER: &str = "node.setpoint.dev/ready-after";
    /// `true`: runs, but is never ready.
    pub const NEVER_READY: &str = "node.setpoint.dev/never-ready";
    /// `true`: the image cannot be pulled.
    pub const NEVER_START: &str = "node.setpoint.dev/never-start";
    /// How long the containers run before they exit. By default they run until they are deleted.
    pub const RUN_FOR: &str = "node.setpoint.dev/run-for";
    /// The exit code of containers (default 0). On its own it makes them exit shortly after they start.
    pub const EXIT_CODE: &str = "node.setpoint.dev/exit-code";
    /// How often the containers exit before they stay up. By default every time.
    pub const EXIT_TIMES: &str = "node.setpoint.dev/exit-times";
    /// Which probes of the containers fail: `startup`, `liveness`, `readiness`, or several separated by commas. Only
    /// probes that a container has can fail.
    pub const FAILING_PROBES: &str = "node.setpoint.dev/failing-probes";
    /// How long after a container's start its probes begin to fail. By default immediately.
    pub const PROBES_FAIL_AFTER: &str = "node.setpoint.dev/probes-fail-after";
    /// How long probes fail. By default forever.
    pub const PROBES_FAIL_FOR: &str = "node.setpoint.dev/probes-fail-for";
    /// In how many runs of a container its probes fail. By default in all.
    pub const PROBES_FAIL_TIMES: &str = "node.setpoint.dev/probes-fail-times";
    /// The CPU usage of each container: a quantity, or a percentage of its request such as `80%`.
    pub const CPU_USAGE: &str = "node.setpoint.dev/cpu-usage";
    /// The memory usage of each container, in the same format.
    pub const MEMORY_USAGE: &str = "node.setpoint.dev/memory-usage";
    /// How long a deleted pod takes to stop, within its grace period.
    pub const TERMINATE_AFTER: &str = "node.setpoint.dev/terminate-after";
}

/// The default run time of a container that exits: long enough to be seen running.
const A_MOMENT: Duration = Duration::from_millis(500);

/// The default run time of an init container: long enough to be seen.
const INIT_TAKES: Duration = Duration::from_millis(500);

const PREFIX: &str = "node.setpoint.dev/";

/// The behavior of a pod as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodBehaviour {
    pub(crate) start_after: Duration,
    pub(crate) terminate_after: Duration,
}

/// The behavior of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behaviour {
    pub(crate) ready_after: Duration,
    pub(crate) never_ready: bool,
    pub(crate) never_start: bool,
    pub(crate) exits: Option<Exit>,
    pub(crate) failing: Option<Failing>,
}

/// When and how a container exits on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) after: Duration,
    pub(crate) code: i32,
    /// Only this many times.
    pub(crate) times: Option<u32>,
    pub(crate) message: Box<str>,
}

/// The annotations for a container. Malformed ones are ignored: a node runs what it gets.
struct ContainerAnnotations<'a> {
    annotations: &'a BTreeMap<String, String>,
    container: &'a str,
    /// Whether the pod's annotations apply to it.
    is_main: bool,
}

impl<'a> ContainerAnnotations<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        let own = self.annotations.get(&format!("{name}.{}", self.container));
        own.or_else(|| self.annotations.get(name).filter(|_| self.is_main)).map(String::as_str)
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        self.text(name).and_then(parse_duration)
    }

    fn is_true(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    fn behaviour(&self) -> Behaviour {
        Behaviour {
            ready_after: self.duration(annotation::READY_AFTER).unwrap_or_default(),
            never_ready: self.is_true(annotation::NEVER_READY),
            never_start: self.is_true(annotation::NEVER_START),
            exits: Exit::of(self),
            failing: self.failing(),
        }
    }

    fn failing(&self) -> Option<Failing> {
        let kinds = self.text(annotation::FAILING_PROBES)?;
        let named = |kind: &ProbeKind| kinds.split(',').any(|one| one.trim() == kind.name());
        let all = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];
        Some(Failing {
            kinds: all.into_iter().filter(named).collect(),
            after: self.duration(annotation::PROBES_FAIL_AFTER).unwrap_or_default(),
            lasts: self.duration(annotation::PROBES_FAIL_FOR),
            times: self.text(annotation::PROBES_FAIL_TIMES).and_then(|text| text.parse().ok()),
        })
    }
}

/// Whether there is any annotation. Most pods have none.
fn has_any(annotations: &BTreeMap<String, String>) -> bool {
    annotations.range(PREFIX.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(PREFIX))
}

impl PodBehaviour {
    pub(crate) fn of(pod: &PodView) -> Self {
        let annotations = &pod.metadata.annotations;
        let stops_after = pod.spec.containers.iter().map(|container| container.stops_after).max();
        let stops_after = stops_after.unwrap_or_default();
        if !has_any(annotations) {
            return Self { start_after: Duration::ZERO, terminate_after: stops_after };
        }
        let duration = |name| annotations.get(name).and_then(|text| parse_duration(text));
        Self {
            start_after: duration(annotation::START_AFTER).unwrap_or_default(),
            terminate_after: duration(annotation::TERMINATE_AFTER).unwrap_or(stops_after),
        }
    }
}

impl Behaviour {
    /// Returns the behavior of a main container. `ending` is the result of its program, if known.
    pub(crate) fn of_main(
        annotations: &BTreeMap<String, String>,
        container: &Container,
        ending: Option<Ending>,
    ) -> Self {
        Self::from_annotations(annotations, container, true).or_exits(ending)
    }

    /// Returns the behavior of an init container. Unless it is a sidecar, it exits on its own.
    pub(crate) fn of_init(
        annotations: &BTreeMap<String, String>,
        container: &Container,
        ending: Option<Ending>,
    ) -> Self {
        let done = || Ending { after: INIT_TAKES, code: 0, message: Box::default() };
        let is_known = container.program.is_some() || container.is_sidecar();
        let ending = if is_known { ending } else { Some(done()) };
        Self::from_annotations(annotations, container, false).or_exits(ending)
    }

    fn from_annotations(
        annotations: &BTreeMap<String, String>,
        container: &Container,
        is_main: bool,
    ) -> Self {
        match has_any(annotations) {
            true => ContainerAnnotations { annotations, container: &container.name, is_main }.behaviour(),
            false => Self::default(),
        }
    }

    /// Adds the ending of the program, unless annotations override it.
    fn or_exits(mut self, ending: Option<Ending>) -> Self {
        self.exits = self.exits.or_else(|| ending.map(Exit::from));
        self
    }
}

impl From<Ending> for Exit {
    fn from(Ending { after, code, message }: Ending) -> Self {
        Self { after: after.max(A_MOMENT), code, times: None, message }
    }
}

impl Exit {
    fn of(annotations: &ContainerAnnotations<'_>) -> Option<Self> {
        let run_for = annotations.duration(annotation::RUN_FOR);
        let code = annotations.text(annotation::EXIT_CODE).and_then(|text| text.parse().ok());
        if run_for.is_none() && code.is_none() {
            return None;
        }
        let times = annotations.text(annotation::EXIT_TIMES).and_then(|text| text.parse().ok());
        let after = run_for.unwrap_or(A_MOMENT);
        Some(Self { after, code: code.unwrap_or(0), times, message: Box::default() })
    }

    /// Whether containers exit once more after `restarts` restarts.
    pub(crate) fn happens_after(&self, restarts: u32) -> bool {
        self.times.is_none_or(|times| restarts < times)
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds_per_unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(annotations: &[(&str, &str)]) -> Behaviour {
        Behaviour::of_main(&annotated(annotations), &Container::default(), None)
    }

    fn annotated(annotations: &[(&str, &str)]) -> BTreeMap<String, String> {
        annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn container_annotations_override_pod_annotations() {
        let annotations = annotated(&[
            (annotation::EXIT_CODE, "1"),
            ("node.setpoint.dev/exit-code.web", "2"),
            ("node.setpoint.dev/exit-code.setup", "3"),
        ]);
        let code = |behaviour: Behaviour| behaviour.exits.map(|exit| exit.code);
        let container = |name: &str, policy: &str| {
            let (name, restart_policy) = (name.to_owned(), policy.to_owned());
            Container { name, restart_policy, ..Container::default() }
        };
        let ending = || Some(Ending { after: A_MOMENT, code: 9, message: Box::default() });
        assert_eq!(code(Behaviour::of_main(&annotations, &container("other", ""), ending())), Some(1));
        assert_eq!(code(Behaviour::of_main(&annotations, &container("web", ""), None)), Some(2));
        assert_eq!(code(Behaviour::of_init(&annotations, &container("setup", ""), ending())), Some(3));
        assert_eq!(code(Behaviour::of_init(&annotations, &container("other", ""), None)), Some(0));
        assert_eq!(code(Behaviour::of_init(&annotations, &container("proxy", "Always"), None)), None);
        assert_eq!(code(Behaviour::of_main(&BTreeMap::new(), &container("web", ""), ending())), Some(9));
    }

    #[test]
    fn durations_are_read_in_every_unit_and_invalid_ones_are_ignored() {
        let check = |text, expected| assert_eq!(parse_duration(text), expected, "{text}");
        check("500ms", Some(Duration::from_millis(500)));
        check("2s", Some(Duration::from_secs(2)));
        check("1.5m", Some(Duration::from_secs(90)));
        check("3", Some(Duration::from_secs(3)));
        check("-1s", None);
        check("soon", None);
        check("1y", None);
    }

    #[test]
    fn an_exit_code_alone_makes_containers_exit_after_a_moment() {
        let exits = behaviour(&[(annotation::EXIT_CODE, "3")]).exits.expect("exits");
        assert_eq!(exits, Exit { after: A_MOMENT, code: 3, times: None, message: Box::default() });
        assert_eq!(behaviour(&[]).exits, None);
    }

    #[test]
    fn exit_times_bounds_how_often_containers_exit() {
        let exits =
            behaviour(&[(annotation::RUN_FOR, "1s"), (annotation::EXIT_TIMES, "2")]).exits.expect("exits");
        assert!(exits.happens_after(1));
        assert!(!exits.happens_after(2));
    }
}
