//! The pod fields that replica controllers use.
//!
//! A pod is 2 KB of JSON. These fields take 64 bytes and are extracted while decoding, so that a cache of ten thousand
//! pods can keep them beside the encoded objects.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use setpoint::Cached;

use super::encoded_pod::{EncodedContainerStatus, EncodedPod};

/// A pod as replica controllers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    /// Empty if the pod is not scheduled.
    pub(crate) node: Box<str>,
    pub(crate) phase: Phase,
    pub(crate) readiness: Readiness,
    /// 0 unless the annotation is set.
    pub(crate) deletion_cost: i32,
    pub(crate) restarts: Restarts,
}

setpoint::view!(Pod of k8s_openapi::api::core::v1::Pod);

/// The pod phase, in deletion order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    #[default]
    NotReady,
    /// Ready since this time, if known.
    Ready { since: Option<Timestamp> },
}

/// The maximum number of restarts of any container, and of any sidecar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Restarts {
    pub(crate) containers: i32,
    pub(crate) sidecars: i32,
}

impl Pod {
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness != Readiness::NotReady
    }

    /// Whether the pod has been ready for `min_ready` at `now`.
    pub(crate) fn is_available(&self, min_ready: Duration, now: Timestamp) -> bool {
        match self.readiness {
            Readiness::NotReady => false,
            Readiness::Ready { .. } if min_ready.is_zero() => true,
            Readiness::Ready { since } => since.is_some_and(|since| ready_long_enough(since, min_ready, now)),
        }
    }

    /// Returns how long until the pod becomes available if it stays ready. `None` if it is available or not ready.
    pub(crate) fn available_in(&self, min_ready: Duration, now: Timestamp) -> Option<Duration> {
        let Readiness::Ready { since: Some(since) } = self.readiness else { return None };
        let left = since.checked_add(min_ready).ok()?.duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

fn ready_long_enough(since: Timestamp, min_ready: Duration, now: Timestamp) -> bool {
    since.checked_add(min_ready).is_ok_and(|available_from| available_from <= now)
}

/// Whether the pod has neither finished nor is being deleted.
pub(crate) fn is_active(pod: &Cached<Pod>) -> bool {
    !pod.phase.has_ended() && !pod.meta().is_being_deleted()
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(EncodedPod::<Annotations<'_>>::deserialize(deserializer)?.facts())
    }
}

/// The annotations that are decoded.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations<'a> {
    /// The `pod-deletion-cost` set by users.
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost", borrow)]
    deletion_cost: Option<Cow<'a, str>>,
}

impl EncodedPod<'_, Annotations<'_>> {
    fn facts(&self) -> Pod {
        Pod {
            node: self.spec.node_name.as_ref().into(),
            phase: Phase::named(&self.status.phase),
            readiness: self.readiness(),
            deletion_cost: self.deletion_cost(),
            restarts: Restarts {
                containers: max_restarts(self.status.containers()),
                sidecars: max_restarts(self.status.sidecars(&self.spec)),
            },
        }
    }

    fn readiness(&self) -> Readiness {
        match self.status.ready() {
            Some(ready) if ready.status == "True" => Readiness::Ready { since: ready.last_transition_time },
            _ => Readiness::NotReady,
        }
    }

    fn deletion_cost(&self) -> i32 {
        self.annotations().and_then(|all| parse_cost(all.deletion_cost.as_deref()?)).unwrap_or(0)
    }
}

fn max_restarts<'a>(containers: impl Iterator<Item = &'a EncodedContainerStatus<'a>>) -> i32 {
    containers.map(|container| container.restart_count).max().unwrap_or(0)
}

impl Phase {
    /// Whether this phase is final.
    pub(crate) fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    pub(crate) fn named(name: &str) -> Self {
        match name {
            "Running" => Self::Running,
            "Unknown" => Self::Unknown,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// Parses a decimal number without plus sign or leading zeros. Anything else is ignored.
fn parse_cost(value: &str) -> Option<i32> {
    let well_formed = value == "0" || value.starts_with(|first: char| matches!(first, '-' | '1'..='9'));
    if well_formed { value.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::DELETION_COST;

    fn decode(pod: Value) -> Pod {
        serde_json::from_str(&pod.to_string()).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_facts_are_read_and_the_rest_is_skipped() {
        let pod = decode(json!({
            "metadata": {"name": "a", "annotations": {"x": "y", DELETION_COST: "-7"}},
            "spec": {
                "nodeName": "n1",
                "initContainers": [{"name": "log", "restartPolicy": "Always"}, {"name": "once"}],
                "containers": [{"name": "c", "image": "i"}],
            },
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:09Z"},
                ],
                "containerStatuses": [{"name": "c", "restartCount": 2}, {"name": "d", "restartCount": 5}],
                "initContainerStatuses": [{"name": "log", "restartCount": 3}, {"name": "once", "restartCount": 9}],
            },
        }));
        let expected = Pod {
            node: "n1".into(),
            phase: Phase::Running,
            readiness: Readiness::Ready { since: Some(at(9)) },
            deletion_cost: -7,
            restarts: Restarts { containers: 5, sidecars: 3 },
        };
        assert_eq!(pod, expected);
    }

    #[test]
    fn missing_and_null_fields_have_their_default() {
        assert_eq!(decode(json!({})), Pod::default());
        assert_eq!(
            decode(json!({
                "metadata": {"annotations": null},
                "spec": {"initContainers": null},
                "status": {"conditions": null, "containerStatuses": null, "initContainerStatuses": null},
            })),
            Pod::default()
        );
    }

    #[test]
    fn escaped_text_is_read_too() {
        let pod: Pod =
            serde_json::from_str(r#"{"spec":{"nodeName":"\u006e1"},"status":{"phase":"R\u0075nning"}}"#)
                .unwrap();
        assert_eq!((&*pod.node, pod.phase), ("n1", Phase::Running));
    }

    #[test]
    fn a_malformed_deletion_cost_counts_as_none() {
        let cost =
            |value: &str| decode(json!({"metadata": {"annotations": {DELETION_COST: value}}})).deletion_cost;
        for (value, expected) in
            [("0", 0), ("10", 10), ("-10", -10), ("+10", 0), ("010", 0), ("-0", 0), ("", 0), ("x", 0)]
        {
            assert_eq!(cost(value), expected, "{value:?}");
        }
        assert_eq!((cost("2147483647"), cost("2147483648")), (i32::MAX, 0));
    }

    #[test]
    fn a_pod_is_available_once_it_has_been_ready_long_enough() {
        let ready = |since| Pod { readiness: Readiness::Ready { since }, ..Pod::default() };
        let check = |pod: &Pod, min_ready: u64, now: i64, available: bool, next: Option<u64>| {
            let min_ready = Duration::from_secs(min_ready);
            assert_eq!(pod.is_available(min_ready, at(now)), available, "{pod:?} at {now}");
            assert_eq!(
                pod.available_in(min_ready, at(now)),
                next.map(Duration::from_secs),
                "{pod:?} at {now}"
            );
        };
        check(&Pod::default(), 0, 100, false, None);
        check(&ready(None), 0, 100, true, None);
        check(&ready(None), 10, 100, false, None);
        check(&ready(Some(at(100))), 0, 100, true, None);
        check(&ready(Some(at(100))), 10, 100, false, Some(10));
        check(&ready(Some(at(100))), 10, 109, false, Some(1));
        check(&ready(Some(at(100))), 10, 110, true, None);
        check(&ready(Some(at(100))), 10, 111, true, None);
    }
}
