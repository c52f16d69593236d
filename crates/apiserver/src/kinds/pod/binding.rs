//! Bindings: how a pod comes to its node.

use serde_json::{Value, json};

use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::validation::required;

/// What is wrong with a binding.
pub fn validate(binding: &Value) -> Errors {
    let mut errors = Errors::default();
    let target = binding.at("target");
    let path = Path::root("target");
    let kind = target.text("kind");
    if !matches!(kind, "" | "Node") {
        errors.not_supported(&path.child("kind"), kind, &["Node", "<empty>"]);
    }
    required(target, "name", &path, &mut errors);
    errors
}

/// Assigns a pod to the node of a binding, or says why it cannot be: the reason of a conflict.
///
/// `now` is a time as objects carry it.
pub fn assign(pod: &mut Value, binding: &Value, now: &str) -> Result<(), String> {
    let name = pod.at("metadata").text("name");
    if pod.at("metadata").has("deletionTimestamp") {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod.at("spec").text("nodeName");
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    if !pod.at("spec").list("schedulingGates").is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.object_mut("spec").set("nodeName", binding.at("target").text("name"));
    let metadata = pod.object_mut("metadata");
    for (key, value) in binding.at("metadata").map("annotations").into_iter().flatten() {
        metadata.object_mut("annotations").set(key, value.clone());
    }
    mark_scheduled(pod.object_mut("status"), now);
    Ok(())
}

fn mark_scheduled(status: &mut Value, now: &str) {
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let same = |condition: &Value| condition.text("type") == "PodScheduled";
    match status.at_mut("conditions") {
        Some(Value::Array(conditions)) => match conditions.iter_mut().find(|condition| same(condition)) {
            Some(old) if old.text("status") == "True" => {
                let mut condition = condition;
                condition.restore("lastTransitionTime", old);
                *old = condition;
            }
            Some(old) => *old = condition,
            None => conditions.push(condition),
        },
        _ => status.set("conditions", json!([condition])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_once() {
        let binding = json!({"metadata": {"annotations": {"a": "b"}}, "target": {"name": "n"}});
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}});
        assert_eq!(assign(&mut pod, &binding, "2020-01-01T00:00:00Z"), Ok(()));
        assert_eq!(
            pod,
            json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "spec": {"nodeName": "n"},
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True",
                "lastProbeTime": null, "lastTransitionTime": "2020-01-01T00:00:00Z"}]}})
        );
        let again = assign(&mut pod, &binding, "2020-01-01T00:00:00Z").unwrap_err();
        assert_eq!(again, "pod p is already assigned to node \"n\"");
    }

    #[test]
    fn pods_that_wait_or_go_are_not_bound() {
        let binding = json!({"target": {"name": "n"}});
        let assign = |mut pod: Value| assign(&mut pod, &binding, "").unwrap_err();
        let gated = json!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}});
        assert_eq!(assign(gated), "pod p has non-empty .spec.schedulingGates");
        let deleted = json!({"metadata": {"name": "p", "deletionTimestamp": "x"}});
        assert_eq!(assign(deleted), "pod p is being deleted, cannot be assigned to a host");
    }

    #[test]
    fn a_binding_names_a_node() {
        use crate::kinds::check::shown;
        assert!(validate(&json!({"target": {"kind": "Node", "name": "n"}})).is_empty());
        assert_eq!(
            shown(&validate(&json!({"target": {"kind": "Pod"}}))),
            ["NotSupported target.kind", "Required target.name"]
        );
    }
}
