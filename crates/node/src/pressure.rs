//! Nodes that are made to have pressure, by an annotation on the Node object. Pure.
//!
//! Such a node reports the conditions, accepts only the pods that a kubelet would accept, and evicts BestEffort pods if
//! it has memory pressure.

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Object;
use setpoint::conditions::whole_seconds;

use crate::view::PodView;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    Disk,
    Memory,
    Pid,
}

const ALL: [Pressure; 3] = [Pressure::Disk, Pressure::Memory, Pressure::Pid];

impl Pressure {
    /// Parses the annotation: `memory`, `disk`, `pid`, or several separated by commas.
    pub(crate) fn named(annotation: Option<&String>) -> Vec<Self> {
        let named =
            |kind: &Self| annotation.is_some_and(|text| text.split(',').any(|one| one.trim() == kind.name()));
        ALL.into_iter().filter(named).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Pid => "pid",
        }
    }

    fn condition(self) -> &'static str {
        match self {
            Self::Disk => "DiskPressure",
            Self::Memory => "MemoryPressure",
            Self::Pid => "PIDPressure",
        }
    }

    /// Returns the reason and message of the condition.
    fn words(self, short: bool) -> (&'static str, &'static str) {
        match (self, short) {
            (Self::Disk, true) => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            (Self::Disk, false) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            (Self::Memory, true) => {
                ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
            }
            (Self::Memory, false) => {
                ("KubeletHasSufficientMemory", "kubelet has sufficient memory available")
            }
            (Self::Pid, true) => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            (Self::Pid, false) => ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        }
    }
}

/// Returns the conditions of a node with these pressures.
pub(crate) fn conditions(short_of: &[Pressure], now: Timestamp) -> Vec<Value> {
    let now = whole_seconds(now).to_string();
    let condition = |kind: &Pressure| {
        let short = short_of.contains(kind);
        let (reason, message) = kind.words(short);
        json!({"type": kind.condition(), "status": if short { "True" } else { "False" }, "reason": reason,
               "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    ALL.iter().map(condition).collect()
}

/// Returns the pressures whose conditions are not up to date.
pub(crate) fn unreported<'a>(
    short_of: &[Pressure],
    shown: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Vec<Pressure> {
    let is_reported =
        |kind: &Pressure| shown.clone().any(|(name, status)| name == kind.condition() && status == "True");
    ALL.into_iter().filter(|kind| short_of.contains(kind) != is_reported(kind)).collect()
}

/// How a node under pressure treats a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// It rejects the pod.
    Refuse(String),
    /// It evicts the pod.
    Evict(String),
}

/// Returns what to do about an unfinished pod. `None` if it may stay.
pub(crate) fn measure(short_of: &[Pressure], encoded: &Object, pod: &PodView) -> Option<Measure> {
    let is_critical = encoded.contains_text("\"priorityClassName\":\"system-");
    if short_of.is_empty() || is_critical || matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
        return None;
    }
    let is_best_effort = encoded.contains_text("\"qosClass\":\"BestEffort\"");
    if pod.status.start_time.is_none() {
        let only_memory = short_of == [Pressure::Memory];
        let is_tolerant = encoded.contains_text("\"node.kubernetes.io/memory-pressure\"");
        if only_memory && (!is_best_effort || is_tolerant) {
            return None;
        }
        let names: Vec<&str> = short_of.iter().map(|kind| kind.condition()).collect();
        return Some(Measure::Refuse(format!("The node had condition: [{}]. ", names.join(" "))));
    }
    (short_of.contains(&Pressure::Memory) && is_best_effort).then(|| {
        let mut message = "The node was low on resource: memory. ".to_owned();
        for container in &pod.spec.containers {
            let name = &container.name;
            message +=
                &format!("Container {name} was using 16Mi, request is 0, has larger consumption of memory. ");
        }
        Measure::Evict(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_effort_pods_are_evicted_and_new_pods_rejected() {
        use Pressure::{Disk, Memory, Pid};
        let check = |short_of: &[Pressure], qos: &str, started: bool, class: &str, expected: Option<&str>| {
            let started = if started { json!("2025-01-01T00:00:00Z") } else { Value::Null };
            let pod = json!({
                "metadata": {"name": "p"},
                "spec": {"priorityClassName": class, "containers": [{"name": "c"}]},
                "status": {"phase": "Pending", "qosClass": qos, "startTime": started},
            });
            let object = Object::from_json(pod.to_string().into()).expect("a pod");
            let found = measure(short_of, &object, object.view().expect("a pod")).map(|found| match found {
                Measure::Refuse(message) => format!("refuse: {message}"),
                Measure::Evict(message) => format!("evict: {message}"),
            });
            assert_eq!(found.as_deref(), expected, "{short_of:?} {qos}");
        };
        let evicted = "evict: The node was low on resource: memory. Container c was using 16Mi, request is 0, has larger consumption of memory. ";
        check(&[], "BestEffort", true, "", None);
        check(&[Memory], "BestEffort", true, "", Some(evicted));
        check(&[Memory], "Burstable", true, "", None);
        check(&[Memory], "BestEffort", true, "system-node-critical", None);
        check(&[Memory], "Burstable", false, "", None);
        check(&[Memory], "BestEffort", false, "", Some("refuse: The node had condition: [MemoryPressure]. "));
        check(
            &[Disk, Pid],
            "Guaranteed",
            false,
            "",
            Some("refuse: The node had condition: [DiskPressure PIDPressure]. "),
        );
        check(&[Disk], "BestEffort", true, "", None);
    }

    #[test]
    fn annotated_pressure_is_reported_once() {
        let named = Pressure::named(Some(&"memory, disk".to_owned()));
        assert_eq!(named, [Pressure::Disk, Pressure::Memory]);
        assert!(Pressure::named(None).is_empty() && Pressure::named(Some(&"heat".to_owned())).is_empty());
        let shown = [("MemoryPressure", "True"), ("DiskPressure", "False")];
        assert_eq!(unreported(&named, shown.into_iter()), [Pressure::Disk]);
        assert_eq!(unreported(&[], shown.into_iter()), [Pressure::Memory]);
        assert!(unreported(&[Pressure::Memory], shown.into_iter()).is_empty());
    }
}
