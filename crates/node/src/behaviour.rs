//! What a pod's annotations ask of the node that runs it.

use std::collections::BTreeMap;
use std::time::Duration;

/// The annotations, by name. Durations are written `500ms`, `2s`, `1m`, or as plain seconds.
pub mod annotation {
    /// `true` on a Node: it fails, until it is told otherwise.
    pub const FAILED: &str = "node.setpoint.dev/failed";
    /// How long the containers take to start.
    pub const START_AFTER: &str = "node.setpoint.dev/start-after";
    /// How long after its start a container becomes ready.
    pub const READY_AFTER: &str = "node.setpoint.dev/ready-after";
    /// `true`: runs, but is never ready.
    pub const NEVER_READY: &str = "node.setpoint.dev/never-ready";
    /// `true`: the image cannot be pulled.
    pub const NEVER_START: &str = "node.setpoint.dev/never-start";
    /// How long the containers run before they exit; without it they run until they are deleted.
    pub const RUN_FOR: &str = "node.setpoint.dev/run-for";
    /// The code that containers exit with (0); alone it makes them exit after a moment.
    pub const EXIT_CODE: &str = "node.setpoint.dev/exit-code";
    /// How many times the containers exit before they stay up; without it every time.
    pub const EXIT_TIMES: &str = "node.setpoint.dev/exit-times";
    /// How much cpu each container uses: a quantity, or a share of its request such as `80%`.
    pub const CPU_USAGE: &str = "node.setpoint.dev/cpu-usage";
    /// How much memory each container uses, in the same way.
    pub const MEMORY_USAGE: &str = "node.setpoint.dev/memory-usage";
    /// How long a deleted pod takes to stop, within its grace period.
    pub const TERMINATE_AFTER: &str = "node.setpoint.dev/terminate-after";
}

/// How long a container that exits runs when nothing says so: long enough to be seen running.
const A_MOMENT: Duration = Duration::from_millis(500);

/// How a pod behaves on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behaviour {
    pub(crate) start_after: Duration,
    pub(crate) ready_after: Duration,
    pub(crate) never_ready: bool,
    pub(crate) never_start: bool,
    pub(crate) exits: Option<Exit>,
    pub(crate) terminate_after: Duration,
}

/// When and how containers exit by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) after: Duration,
    pub(crate) code: i32,
    /// Only this many times.
    pub(crate) times: Option<u32>,
}

impl Behaviour {
    /// What the annotations ask for. One that cannot be read counts as absent: a node runs what it gets.
    pub(crate) fn of(annotations: &BTreeMap<String, String>) -> Self {
        let duration = |name| annotations.get(name).and_then(|text| parse_duration(text));
        let is_true = |name| annotations.get(name).is_some_and(|text| text == "true");
        Self {
            start_after: duration(annotation::START_AFTER).unwrap_or_default(),
            ready_after: duration(annotation::READY_AFTER).unwrap_or_default(),
            never_ready: is_true(annotation::NEVER_READY),
            never_start: is_true(annotation::NEVER_START),
            exits: Exit::of(annotations, duration(annotation::RUN_FOR)),
            terminate_after: duration(annotation::TERMINATE_AFTER).unwrap_or_default(),
        }
    }
}

impl Exit {
    fn of(annotations: &BTreeMap<String, String>, run_for: Option<Duration>) -> Option<Self> {
        let code = annotations.get(annotation::EXIT_CODE).and_then(|text| text.parse().ok());
        if run_for.is_none() && code.is_none() {
            return None;
        }
        let times = annotations.get(annotation::EXIT_TIMES).and_then(|text| text.parse().ok());
        Some(Self { after: run_for.unwrap_or(A_MOMENT), code: code.unwrap_or(0), times })
    }

    /// Whether containers that were already restarted `restarts` times exit once more.
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
        Behaviour::of(&annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn durations_are_read_in_every_unit_and_nonsense_is_ignored() {
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
        assert_eq!(exits, Exit { after: A_MOMENT, code: 3, times: None });
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
