//! Taints new nodes as not ready, so that they get no pods before the node controller has seen them ready.

use serde_json::{Value, json};

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::status::Status;

pub struct TaintNodesByCondition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const NO_SCHEDULE: &str = "NoSchedule";

impl Plugin for TaintNodesByCondition {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is_for("", "nodes")
    }

    async fn mutate(&self, _: &Review<'_>, node: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        let is_not_ready =
            |taint: &Value| taint.text("key") == NOT_READY && taint.text("effect") == NO_SCHEDULE;
        if !node.at("spec").list("taints").iter().any(is_not_ready) {
            let spec = node.object_mut("spec");
            let taint = json!({ "key": NOT_READY, "effect": NO_SCHEDULE });
            match spec.at_mut("taints") {
                Some(Value::Array(taints)) => taints.push(taint),
                _ => spec.set("taints", vec![taint]),
            }
        }
        Ok(())
    }
}
