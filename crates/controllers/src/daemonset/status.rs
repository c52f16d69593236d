//! Computes a DaemonSet's status, and when to check again. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::placement::Verdict;
use super::plan::Observed;
use super::view::DaemonSetStatus;

/// Computes the status. `acted_on` says whether the current generation has been acted on.
pub(super) fn status(observed: &Observed<'_>, acted_on: bool, now: Timestamp) -> DaemonSetStatus {
    let before = &observed.set.status;
    let mut status = DaemonSetStatus {
        observed_generation: if acted_on {
            observed.set.meta().generation
        } else {
            before.observed_generation
        },
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    for (node, verdict) in &observed.nodes {
        let first = observed.on(node).first();
        if *verdict != Verdict::Run {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.is_ready());
        status.number_available += i32::from(observed.is_available(pod, now));
        status.updated_number_scheduled += i32::from(observed.is_updated(pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Returns when the next pod becomes available through `minReadySeconds`, if one will.
pub(super) fn next_check(observed: &Observed<'_>, now: Timestamp) -> Option<Duration> {
    let min_ready = observed.set.spec.min_ready();
    observed.pods.values().flatten().filter_map(|pod| pod.available_in(min_ready, now)).min()
}
