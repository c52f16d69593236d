//! Computes the status of a set, and when to check again. Pure.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::Cached;

use super::view::REPLICA_FAILURE;
use super::{ReplicaSetStatus, Replicated};
use crate::workload::condition::{self, Condition};
use crate::workload::pod::Pod;

/// Why the number of pods is not as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Create,
    Delete,
}

impl Failed {
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Create => "FailedCreate",
            Self::Delete => "FailedDelete",
        }
    }
}

/// Computes the status from the pods and the result of the writes.
pub(super) fn status<R: Replicated>(
    set: &Cached<R>,
    pods: &[Cached<Pod>],
    failure: Option<(Failed, &str)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let template_labels = &set.spec().template.metadata.labels;
    let fully_labelled = |pod: &&Cached<Pod>| {
        template_labels.iter().all(|(key, value)| pod.meta().labels.get(key) == Some(value))
    };
    let available = |pod: &&Cached<Pod>| pod.is_available(set.spec().min_ready(), now);
    ReplicaSetStatus {
        replicas: count(pods.iter()),
        fully_labeled_replicas: count(pods.iter().filter(fully_labelled)),
        ready_replicas: count(pods.iter().filter(|pod| pod.is_ready())),
        available_replicas: count(pods.iter().filter(available)),
        observed_generation: set.meta().generation,
        terminating_replicas: None,
        conditions: conditions(&set.status().conditions, failure, now),
    }
}

/// Returns the conditions. A failure is reported once, as it first occurred, until it is over.
fn conditions(current: &[Condition], failure: Option<(Failed, &str)>, now: Timestamp) -> Vec<Condition> {
    let mut conditions = current.to_vec();
    match failure {
        Some((failed, message)) if condition::find(current, REPLICA_FAILURE).is_none() => {
            conditions.push(Condition::new(REPLICA_FAILURE, "True", failed.reason(), message, now));
        }
        Some(_) => {}
        None => condition::remove(&mut conditions, REPLICA_FAILURE),
    }
    conditions
}

/// Returns when the next pod becomes available through `minReadySeconds`, if one will.
pub(super) fn next_check<R: Replicated>(
    set: &Cached<R>,
    status: &ReplicaSetStatus,
    pods: &[Cached<Pod>],
    now: Timestamp,
) -> Option<Duration> {
    let min_ready = set.spec().min_ready();
    if min_ready.is_zero() || status.ready_replicas == status.available_replicas {
        return None;
    }
    // Also check a ready pod without a transition time again.
    pods.iter().filter_map(|pod| pod.available_in(min_ready, now)).min().or(Some(min_ready))
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
