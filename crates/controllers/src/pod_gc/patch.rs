//! Builds the patch that marks a pod as failed before it is deleted. Pure.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use setpoint::Cached;

use super::plan::DeletionReason;
use crate::workload::disruption_target::disruption_target;
use crate::workload::pod::{Phase, Pod};

/// Returns the strategic merge patch of a pod's status, or `None` if the pod has already finished.
pub(super) fn mark_failed(pod: &Cached<Pod>, reason: DeletionReason, now: Timestamp) -> Option<Bytes> {
    if matches!(pod.phase, Phase::Succeeded | Phase::Failed) {
        return None;
    }
    let meta = pod.meta();
    let mut status = json!({"phase": "Failed", "observedGeneration": meta.generation});
    if reason == DeletionReason::Orphaned {
        let condition =
            disruption_target(pod.object(), "DeletionByPodGC", "PodGC: node no longer exists", now);
        status["conditions"] = condition.into_iter().collect();
    }
    let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
    Some(patch.to_string().into())
}
