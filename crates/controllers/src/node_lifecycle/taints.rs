//! Which taints a node's conditions call for. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const NO_SCHEDULE: &str = "NoSchedule";
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// Condition, its status, and the key of the taint that stands for it.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    spec: Spec,
    status: Status,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Taint {
    key: String,
    effect: String,
    /// Its value and the time it was added: none of our business.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The taints the node should have, if it does not have them.
pub(super) fn wanted(node: &Node) -> Option<Vec<Taint>> {
    let called_for: Vec<&str> = called_for(node);
    let stays = |taint: &&Taint| !is_ours(taint) || called_for.contains(&taint.key.as_str());
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(stays).cloned().collect();
    for key in called_for {
        if !taints.iter().any(|taint| is_ours(taint) && taint.key == key) {
            taints.push(Taint { key: key.into(), effect: NO_SCHEDULE.into(), rest: Map::new() });
        }
    }
    (taints != node.spec.taints).then_some(taints)
}

fn called_for(node: &Node) -> Vec<&'static str> {
    let of = |condition: &Condition| {
        let row = BY_CONDITION.iter().find(|row| row.0 == condition.kind && row.1 == condition.status);
        row.map(|row| row.2)
    };
    let cordoned = node.spec.unschedulable.then_some(CORDONED);
    node.status.conditions.iter().filter_map(of).chain(cordoned).collect()
}

/// Whether the taint stands for a condition or a cordon, and so is this controller's.
fn is_ours(taint: &Taint) -> bool {
    let known = taint.key == CORDONED || BY_CONDITION.iter().any(|row| row.2 == taint.key);
    taint.effect == NO_SCHEDULE && known
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The taints written to a node with these, as `key:effect`; none if nothing is written.
    fn written(spec: Value, conditions: Value) -> Option<Vec<String>> {
        let node = serde_json::from_value(json!({"spec": spec, "status": {"conditions": conditions}}));
        let taints = wanted(&node.expect("a node"))?;
        Some(taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
    }

    fn taint(key: &str, effect: &str) -> Value {
        json!({"key": key, "effect": effect, "value": "v"})
    }

    #[test]
    fn a_ready_node_loses_the_taint_it_was_born_with() {
        let born = json!({"taints": [taint("node.kubernetes.io/not-ready", "NoSchedule"), taint("mine", "NoSchedule")]});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(written(born, ready), Some(vec!["mine:NoSchedule".into()]));
    }

    #[test]
    fn each_condition_and_a_cordon_bring_their_taint() {
        let conditions =
            json!([{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"}]);
        let expected = ["unreachable", "disk-pressure", "unschedulable"]
            .map(|key| format!("node.kubernetes.io/{key}:NoSchedule"));
        assert_eq!(written(json!({"unschedulable": true}), conditions), Some(expected.to_vec()));
    }

    #[test]
    fn taints_that_evict_are_left_alone_and_a_settled_node_is_not_written() {
        let evicting = json!({"taints": [taint("node.kubernetes.io/not-ready", "NoExecute")]});
        assert_eq!(written(evicting, json!([{"type": "Ready", "status": "True"}])), None);
    }
}
