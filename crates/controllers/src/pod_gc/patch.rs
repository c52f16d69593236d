//! How a pod is marked as failed before it is removed. Pure.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use setpoint::Cached;

use super::plan::Why;
use crate::workload::disruption_target::disruption_target;
use crate::workload::pod::{Phase, Pod};

/// The strategic merge patch of a pod's status; `None` for a pod that had ended by itself.
pub(super) fn mark_failed(pod: &Cached<Pod>, why: Why, now: Timestamp) -> Option<Bytes> {
    if matches!(pod.phase, Phase::Succeeded | Phase::Failed) {
        return None;
    }
    let meta = pod.meta();
    let mut status = json!({"phase": "Failed", "observedGeneration": meta.generation});
    if why == Why::Orphaned {
        let told = disruption_target(pod.object(), "DeletionByPodGC", "PodGC: node no longer exists", now);
        status["conditions"] = told.into_iter().collect();
    }
    let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
    Some(patch.to_string().into())
}
