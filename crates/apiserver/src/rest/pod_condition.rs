//! Conditions that the server itself writes into a pod's status.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json::{Json, JsonMut};
use crate::metadata;

/// A condition that is true.
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

impl Condition {
    /// Sets it; the time of the transition stays that of the first time it became true.
    pub(crate) fn set(&self, pod: &mut Value, now: Timestamp) {
        let status = pod.object_mut("status");
        let mut conditions = status.list("conditions").to_vec();
        let at = conditions.iter().position(|condition| condition.text("type") == self.kind);
        let old = at.map(|at| conditions[at].clone()).unwrap_or_default();
        let mut new = json!({
            "type": self.kind,
            "status": "True",
            "lastProbeTime": old.at("lastProbeTime"),
            "lastTransitionTime": metadata::seconds(now),
        });
        if old.text("status") == "True" {
            new.restore("lastTransitionTime", &old);
        }
        for (field, text) in [("reason", self.reason), ("message", self.message)] {
            if !text.is_empty() {
                new.set(field, text);
            }
        }
        match at {
            Some(at) => conditions[at] = new,
            None => conditions.push(new),
        }
        status.set("conditions", conditions);
    }
}
