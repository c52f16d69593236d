//! The simulated behavior of pods, set by annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::probes::{Failing, ProbeKind};
use crate::runtime::{Ending, Entrypoint, Fate};
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
    /// Patterns of images that cannot be pulled, separated by commas: `*` stands for any text.
    pub const MISSING_IMAGES: &str = "node.setpoint.dev/missing-images";
    /// Lines that the containers print, with the times after their start: see the module `log`.
    pub const LOG: &str = "node.setpoint.dev/log";
    /// A ConfigMap with such lines: its name, or its name and a key separated by a slash.
    pub const LOG_FROM: &str = "node.setpoint.dev/log-from";
    /// The local process that answers connections to the pod: a loopback address and port.
    pub const BACKEND: &str = "node.setpoint.dev/backend";
    /// How long the containers run before they exit, or `forever`. By default they run until they are deleted, or for a
    /// second if they are not always restarted.
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

/// The run time of an init container whose program is not known: long enough to be seen.
const INIT_TAKES: Duration = Duration::from_millis(500);

/// The run time of a container whose program is not known, in a pod that is meant to end.
const UNKNOWN_TAKES: Duration = Duration::from_secs(1);

const PREFIX: &str = "node.setpoint.dev/";

/// The run time of a container that does not exit.
const FOREVER: &str = "forever";

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
    /// Whether it runs until it is stopped, whatever its program.
    stays: bool,
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
            stays: self.text(annotation::RUN_FOR) == Some(FOREVER),
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
    /// Returns the behavior of a main container. `is_always_restarted` is the pod's restart policy.
    pub(crate) fn of_main(
        annotations: &BTreeMap<String, String>,
        container: &Container,
        fate: Option<&Fate>,
        is_always_restarted: bool,
    ) -> Self {
        let unknown_takes = (!is_always_restarted).then_some(UNKNOWN_TAKES);
        let ending = ending(container, fate, unknown_takes);
        Self::from_annotations(annotations, container, true).or_exits(ending)
    }

    /// Returns the behavior of an init container. Unless it is a sidecar, it exits on its own.
    pub(crate) fn of_init(
        annotations: &BTreeMap<String, String>,
        container: &Container,
        fate: Option<&Fate>,
    ) -> Self {
        let unknown_takes = (!container.is_sidecar()).then_some(INIT_TAKES);
        let ending = ending(container, fate, unknown_takes);
        Self::from_annotations(annotations, container, false).or_exits(ending)
    }

    /// Returns the behavior of an ephemeral container. It stays unless its program is known to end.
    pub(crate) fn of_ephemeral(
        annotations: &BTreeMap<String, String>,
        container: &Container,
        fate: Option<&Fate>,
    ) -> Self {
        Self::from_annotations(annotations, container, false).or_exits(ending(container, fate, None))
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
        let ending = ending.filter(|_| !self.stays);
        self.exits = self.exits.or_else(|| ending.map(Exit::from));
        self
    }
}

/// Returns how a run of a container ends. One that does something unknown succeeds after that takes `unknown_takes`, or
/// does not end.
fn ending(container: &Container, fate: Option<&Fate>, unknown_takes: Option<Duration>) -> Option<Ending> {
    let after = match (fate, container.entrypoint) {
        (Some(Fate::Ends(ending)), _) => return Some(ending.clone()),
        (Some(Fate::Forever), _) | (None, Entrypoint::Server) => return None,
        (Some(Fate::Unknown { after }), _) => *after,
        // It is computed when the container runs.
        (None, Entrypoint::Command) => return None,
        (None, Entrypoint::Unknown) => Duration::ZERO,
    };
    unknown_takes.map(|takes| Ending { after: after + takes, code: 0, message: Box::default() })
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

pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
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
        Behaviour::of_main(&annotated(annotations), &Container::default(), None, true)
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
        let ends = Fate::Ends(Ending { after: A_MOMENT, code: 9, message: Box::default() });
        let main = |name: &str, fate| Behaviour::of_main(&annotations, &container(name, ""), fate, true);
        let init =
            |name: &str, policy, fate| Behaviour::of_init(&annotations, &container(name, policy), fate);
        assert_eq!(code(main("other", Some(&ends))), Some(1));
        assert_eq!(code(main("web", None)), Some(2));
        assert_eq!(code(init("setup", "", Some(&ends))), Some(3));
        assert_eq!(code(init("other", "", None)), Some(0));
        assert_eq!(code(init("proxy", "Always", None)), None);
        let bare = Behaviour::of_main(&BTreeMap::new(), &container("web", ""), Some(&ends), true);
        assert_eq!(code(bare), Some(9));
    }

    #[test]
    fn a_program_that_is_not_known_ends_only_in_a_pod_that_is_meant_to_end() {
        let after = |annotations: &[(&str, &str)], fate: Option<&Fate>, entrypoint, is_always_restarted| {
            let container = Container { entrypoint, ..Container::default() };
            let behaviour =
                Behaviour::of_main(&annotated(annotations), &container, fate, is_always_restarted);
            behaviour.exits.map(|exit| (exit.after.as_secs(), exit.code))
        };
        let unknown = Fate::Unknown { after: Duration::from_secs(5) };
        assert_eq!(after(&[], None, Entrypoint::Unknown, false), Some((1, 0)));
        assert_eq!(after(&[], None, Entrypoint::Unknown, true), None);
        assert_eq!(after(&[], Some(&unknown), Entrypoint::Command, false), Some((6, 0)));
        assert_eq!(after(&[], Some(&Fate::Forever), Entrypoint::Command, false), None);
        assert_eq!(after(&[], None, Entrypoint::Server, false), None);
        assert_eq!(after(&[(annotation::RUN_FOR, "forever")], None, Entrypoint::Unknown, false), None);
        assert_eq!(after(&[(annotation::EXIT_CODE, "3")], None, Entrypoint::Unknown, false), Some((0, 3)));
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
