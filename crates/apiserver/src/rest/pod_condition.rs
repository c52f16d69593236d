//! Pod conditions set by the server.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json::{Json, JsonMut};
use crate::metadata;

/// A condition with status `True`.
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

impl Condition {
    /// Sets the condition; if it was already true, keeps its transition time.
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
