//! The DisruptionTarget condition of pods. Pure.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::Object;

use super::condition::{Condition, find, whole_seconds};
use super::encoding::null_is_empty;

pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Returns the condition, keeping its transition time. `None` if the pod already has it.
pub(crate) fn disruption_target(pod: &Object, reason: &str, message: &str, now: Timestamp) -> Option<Value> {
    let known = conditions(pod);
    let before = find(&known, DISRUPTION_TARGET).filter(|known| known.is_true());
    if before.is_some_and(|known| known.reason == reason && known.message == message) {
        return None;
    }
    let since = before.and_then(|known| known.last_transition_time).unwrap_or(whole_seconds(now));
    Some(json!({
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": pod.meta().generation,
    }))
}

/// Returns the conditions of a pod.
pub(crate) fn conditions(pod: &Object) -> Vec<Condition> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Encoded {
        status: Status,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        #[serde(deserialize_with = "null_is_empty")]
        conditions: Vec<Condition>,
    }
    pod.decode::<Encoded>().unwrap_or_default().status.conditions
}
