//! Computes a set's status, and when to check again. Pure.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::Cached;

use super::plan::{Revisions, revision_of};
use super::view::{StatefulSet, StatefulSetStatus, ordinal_in};
use crate::workload::pod::{Phase, Pod};

/// Computes the status. `renewed` pods were just deleted because they were outdated.
pub(super) fn status(
    set: &Cached<StatefulSet>,
    pods: &[Cached<Pod>],
    revisions: &Revisions,
    collision_count: i32,
    renewed: i32,
    now: Timestamp,
) -> StatefulSetStatus {
    let members: Vec<_> = pods.iter().filter(|pod| ordinal_in(set.meta(), pod.meta()).is_some()).collect();
    let count = |wanted: &dyn Fn(&Cached<Pod>) -> bool| {
        i32::try_from(members.iter().filter(|pod| wanted(pod)).count()).unwrap_or(i32::MAX)
    };
    let ready = |pod: &Cached<Pod>| pod.phase == Phase::Running && pod.is_ready();
    let of_revision =
        |name: &str| count(&|pod| !pod.meta().is_being_deleted() && revision_of(pod.meta()) == Some(name));
    let status = StatefulSetStatus {
        observed_generation: set.meta().generation,
        replicas: count(&|_| true),
        ready_replicas: count(&ready),
        available_replicas: count(&|pod| ready(pod) && pod.is_available(set.spec.min_ready(), now)),
        current_replicas: of_revision(&revisions.current).saturating_sub(renewed),
        updated_replicas: of_revision(&revisions.update),
        current_revision: revisions.current.clone(),
        update_revision: revisions.update.clone(),
        collision_count: Some(collision_count),
    };
    completed(set, status)
}

/// Completes a rolling update that has reached every pod: the update revision becomes current.
fn completed(set: &StatefulSet, mut status: StatefulSetStatus) -> StatefulSetStatus {
    let wanted = set.spec.replicas;
    let all = [status.updated_replicas, status.ready_replicas, status.replicas]
        .iter()
        .all(|count| *count == wanted);
    if set.spec.update_strategy.is_rolling() && all {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
    status
}

/// Returns when the next pod becomes available through `minReadySeconds`, if one will.
pub(super) fn next_check(set: &StatefulSet, pods: &[Cached<Pod>], now: Timestamp) -> Option<Duration> {
    let min_ready = set.spec.min_ready();
    pods.iter().filter_map(|pod| pod.available_in(min_ready, now)).min()
}
