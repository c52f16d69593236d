//! Lets pods tolerate a node that is not ready or unreachable for five minutes.

use serde_json::{Value, json};

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::status::Status;

pub struct DefaultTolerationSeconds;

const SECONDS: u64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation != Operation::Delete && review.is_for("", "pods")
    }

    async fn mutate(&self, _: &Review<'_>, pod: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        let missing: Vec<Value> = TAINTS
            .into_iter()
            .filter(|taint| {
                !pod.at("spec").list("tolerations").iter().any(|toleration| covers(toleration, taint))
            })
            .map(toleration)
            .collect();
        if !missing.is_empty() {
            let spec = pod.object_mut("spec");
            match spec.at_mut("tolerations") {
                Some(Value::Array(tolerations)) => tolerations.extend(missing),
                _ => spec.set("tolerations", missing),
            }
        }
        Ok(())
    }
}

fn covers(toleration: &Value, taint: &str) -> bool {
    let key = toleration.text("key");
    (key == taint || key.is_empty()) && matches!(toleration.text("effect"), "NoExecute" | "")
}

fn toleration(taint: &str) -> Value {
    json!({ "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS })
}
