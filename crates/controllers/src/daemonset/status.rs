//! Computes a DaemonSet's status, and when to check again. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::placement::Verdict;
use super::plan::Scene;
use super::view::DaemonSetStatus;

/// Computes the status. `acted_on` says whether the current generation has been acted on.
pub(super) fn status(scene: &Scene<'_>, acted_on: bool, now: Timestamp) -> DaemonSetStatus {
    let before = &scene.set.status;
    let mut status = DaemonSetStatus {
        observed_generation: if acted_on { scene.set.meta().generation } else { before.observed_generation },
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    for (node, verdict) in &scene.nodes {
        let first = scene.on(node).first();
        if *verdict != Verdict::Run {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.is_ready());
        status.number_available += i32::from(scene.is_available(pod, now));
        status.updated_number_scheduled += i32::from(scene.is_updated(pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Returns when the next pod becomes available through `minReadySeconds`, if one will.
pub(super) fn next_check(scene: &Scene<'_>, now: Timestamp) -> Option<Duration> {
    let min_ready = scene.set.spec.min_ready();
    scene.pods.values().flatten().filter_map(|pod| pod.available_in(min_ready, now)).min()
}
