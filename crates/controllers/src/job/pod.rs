//! The pod fields that a Job depends on: whether, how and when it finished.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use setpoint::Cached;

use super::view::TRACKING;
use crate::workload::encoded_pod::{EncodedContainerStatus, EncodedPod};
use crate::workload::pod::Phase;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobPod {
    pub(super) phase: Phase,
    pub(super) is_ready: bool,
    /// The completion index, if valid.
    pub(super) index: Option<usize>,
    /// Earlier failures of its index, counted and ignored.
    pub(super) index_failures: i32,
    pub(super) index_ignored_failures: i32,
    /// Total restarts of all containers.
    pub(super) restarts: i32,
    /// When it finished, according to its status.
    finished: Option<Timestamp>,
    /// Containers that exited with a failure, then init containers.
    pub(super) exits: Box<[Exit]>,
    /// Types and statuses.
    pub(super) conditions: Box<[(Box<str>, Box<str>)]>,
}

setpoint::view!(JobPod of k8s_openapi::api::core::v1::Pod);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) container: Box<str>,
    pub(super) code: i32,
}

/// A pod of a Job, with in-memory state beyond the cache.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) pod: Cached<JobPod>,
    /// Whether the cache shows the tracking finalizer.
    pub(super) tracked: bool,
    /// Whether it has been counted, even if the cache does not show it yet.
    pub(super) counted: bool,
}

impl Member {
    pub(super) fn of(pod: Cached<JobPod>, counted: bool) -> Self {
        let tracked = pod.meta().has_finalizer(TRACKING);
        Self { pod, tracked, counted }
    }

    pub(super) fn uid(&self) -> &str {
        &self.pod.meta().uid
    }

    /// Whether it still has to be counted.
    pub(super) fn is_uncounted(&self) -> bool {
        self.tracked && !self.counted
    }

    pub(super) fn is_active(&self) -> bool {
        !self.pod.phase.has_ended() && !self.pod.meta().is_being_deleted()
    }

    pub(super) fn is_terminating(&self) -> bool {
        !self.pod.phase.has_ended() && self.pod.meta().is_being_deleted()
    }

    pub(super) fn has_succeeded(&self) -> bool {
        self.pod.phase == Phase::Succeeded
    }

    /// Whether it has failed. Terminating pods count as failed unless only finished ones are replaced.
    pub(super) fn has_failed(&self, only_when_ended: bool) -> bool {
        match self.pod.phase {
            Phase::Failed => true,
            Phase::Succeeded => false,
            _ => !only_when_ended && self.pod.meta().is_being_deleted(),
        }
    }

    /// Returns when it finished: when its containers did, when it became unready, or when its deletion was requested.
    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        let meta = self.pod.meta();
        let deletion_requested_at = || {
            let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or(0));
            meta.deletion_timestamp.and_then(|by| by.checked_sub(grace).ok())
        };
        self.pod.finished.or_else(deletion_requested_at).or(meta.creation_timestamp)
    }

    pub(super) fn all_index_failures(&self) -> i32 {
        self.pod.index_failures.saturating_add(self.pod.index_ignored_failures)
    }
}

impl<'de> Deserialize<'de> for JobPod {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(EncodedPod::<Annotations<'_>>::deserialize(deserializer)?.facts())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations<'a> {
    #[serde(rename = "batch.kubernetes.io/job-completion-index", borrow)]
    index: Option<Cow<'a, str>>,
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count", borrow)]
    failures: Option<Cow<'a, str>>,
    #[serde(rename = "batch.kubernetes.io/job-index-ignored-failure-count", borrow)]
    ignored_failures: Option<Cow<'a, str>>,
}

impl EncodedPod<'_, Annotations<'_>> {
    fn facts(&self) -> JobPod {
        let annotations = self.annotations();
        let count =
            |text: Option<&Cow<'_, str>>| text.and_then(|text| text.parse().ok()).filter(|n: &i32| *n >= 0);
        JobPod {
            phase: Phase::named(&self.status.phase),
            is_ready: self.status.ready().is_some_and(|ready| ready.status == "True"),
            index: annotations.and_then(|all| all.index.as_ref()?.parse().ok()),
            index_failures: count(annotations.and_then(|all| all.failures.as_ref())).unwrap_or(0),
            index_ignored_failures: count(annotations.and_then(|all| all.ignored_failures.as_ref()))
                .unwrap_or(0),
            restarts: self.statuses().map(|status| status.restart_count).fold(0, i32::saturating_add),
            finished: self.containers_finished().or_else(|| self.stopped_being_ready()),
            exits: self.statuses().filter_map(exit).collect(),
            conditions: self
                .status
                .conditions()
                .map(|one| (one.r#type.as_ref().into(), one.status.as_ref().into()))
                .collect(),
        }
    }

    fn statuses(&self) -> impl Iterator<Item = &EncodedContainerStatus<'_>> {
        self.status.containers().chain(self.status.init_containers())
    }

    fn stopped_being_ready(&self) -> Option<Timestamp> {
        self.status.ready().filter(|ready| ready.status == "False")?.last_transition_time
    }

    /// Returns when the last container or sidecar finished. `None` while one is running.
    fn containers_finished(&self) -> Option<Timestamp> {
        let containers = last_end(None, self.status.containers());
        last_end(containers, self.status.sidecars(&self.spec))
    }
}

fn exit(status: &EncodedContainerStatus<'_>) -> Option<Exit> {
    let code = status.terminated()?.exit_code;
    (code != 0).then(|| Exit { container: status.name.as_ref().into(), code })
}

fn last_end<'a>(
    known: Option<Timestamp>,
    statuses: impl Iterator<Item = &'a EncodedContainerStatus<'a>>,
) -> Option<Timestamp> {
    let mut last = known;
    for status in statuses {
        last = last.max(Some(status.terminated()?.finished_at?));
    }
    last
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::{at, cached};

    fn member(pod: Value) -> Member {
        Member::of(cached(pod), false)
    }

    #[test]
    fn the_finish_time_comes_from_the_most_precise_source() {
        let check = |what: &str, pod: Value, expected: Option<i64>| {
            assert_eq!(member(pod).finished_at(), expected.map(at), "{what}");
        };
        let ended = |second: i64| json!({"state": {"terminated": {"finishedAt": at(second), "exitCode": 0}}});
        let not_ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(7)}]);
        check("nothing known", json!({"metadata": {"name": "a"}}), None);
        check("creation", json!({"metadata": {"name": "a", "creationTimestamp": at(1)}}), Some(1));
        check(
            "deletion requested",
            json!({"metadata": {"name": "a", "deletionTimestamp": at(40), "deletionGracePeriodSeconds": 30}}),
            Some(10),
        );
        check("not ready", json!({"metadata": {"name": "a"}, "status": {"conditions": not_ready}}), Some(7));
        check(
            "containers",
            json!({"metadata": {"name": "a"}, "status": {
                "conditions": not_ready, "containerStatuses": [ended(3), ended(5), ended(4)]}}),
            Some(5),
        );
        check(
            "one still runs",
            json!({"metadata": {"name": "a"}, "status": {
                "conditions": not_ready, "containerStatuses": [ended(3), {"state": {"running": {}}}]}}),
            Some(7),
        );
        let mut sidecar = ended(9);
        sidecar["name"] = json!("log");
        check(
            "a sidecar ends last",
            json!({"metadata": {"name": "a"},
                "spec": {"initContainers": [{"name": "log", "restartPolicy": "Always"}]},
                "status": {"containerStatuses": [ended(3)], "initContainerStatuses": [sidecar, {"name": "once"}]}}),
            Some(9),
        );
    }

    #[test]
    fn only_valid_numbers_count() {
        let index = |text: &str| {
            let annotations = json!({"batch.kubernetes.io/job-completion-index": text,
                "batch.kubernetes.io/job-index-failure-count": text});
            let member = member(json!({"metadata": {"name": "a", "annotations": annotations}}));
            (member.pod.index, member.pod.index_failures)
        };
        assert_eq!(index("3"), (Some(3), 3));
        assert_eq!(index("-1"), (None, 0));
        assert_eq!(index("x"), (None, 0));
        assert_eq!(index("4294967296").1, 0);
    }

    #[test]
    fn a_terminating_pod_has_failed_unless_only_finished_pods_count() {
        let terminating = |phase: &str| {
            member(json!({"metadata": {"name": "a", "deletionTimestamp": at(1)}, "status": {"phase": phase}}))
        };
        assert!(terminating("Running").has_failed(false) && !terminating("Running").has_failed(true));
        assert!(terminating("Failed").has_failed(true) && !terminating("Succeeded").has_failed(false));
        assert!(terminating("Running").is_terminating() && !terminating("Failed").is_terminating());
    }
}
