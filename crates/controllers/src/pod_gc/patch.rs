//! How a pod is marked as failed before it is removed. Pure.

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::{Cached, Object};

use super::plan::Why;
use crate::workload::condition::{Condition, find, whole_seconds};
use crate::workload::pod::{Phase, Pod};

const DISRUPTION: &str = "DisruptionTarget";

/// The strategic merge patch of a pod's status; `None` for a pod that had ended by itself.
pub(super) fn mark_failed(pod: &Cached<Pod>, why: Why, now: Timestamp) -> Option<Bytes> {
    if matches!(pod.phase, Phase::Succeeded | Phase::Failed) {
        return None;
    }
    let meta = pod.meta();
    let mut status = json!({"phase": "Failed", "observedGeneration": meta.generation});
    if why == Why::Orphaned {
        status["conditions"] = json!([disruption(pod.object(), now)]);
    }
    let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
    Some(patch.to_string().into())
}

fn disruption(pod: &Object, now: Timestamp) -> Value {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Encoded {
        status: Status,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        conditions: Vec<Condition>,
    }
    let known = pod.decode::<Encoded>().unwrap_or_default().status.conditions;
    let before = find(&known, DISRUPTION).filter(|known| known.is_true());
    let since = before.and_then(|known| known.last_transition_time).unwrap_or(whole_seconds(now));
    json!({
        "type": DISRUPTION,
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": since,
        "observedGeneration": pod.meta().generation,
    })
}
