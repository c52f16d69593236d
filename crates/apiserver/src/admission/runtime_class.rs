//! Applies a pod's runtime class: its overhead and its scheduling constraints.

use serde_json::{Map, Value};

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::status::Status;

pub struct RuntimeClass;

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const NO_OVERHEAD: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

impl Plugin for RuntimeClass {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is_for("", "pods")
    }

    async fn mutate(&self, review: &Review<'_>, pod: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        let Some(class) = class(review, pod).await? else { return Ok(()) };
        let refuse = |pod: &Value, why: String| Err(review.forbidden(Some(pod), why));
        let overhead = class.at("overhead").at("podFixed");
        let own = pod.at("spec").at("overhead");
        if class.has("overhead") {
            if own.as_object().is_some_and(|own| !own.is_empty()) && own != overhead {
                return refuse(pod, OTHER_OVERHEAD.into());
            }
            pod.object_mut("spec").set("overhead", overhead.clone());
        }
        match schedule(pod.object_mut("spec"), class.at("scheduling")) {
            Ok(()) => Ok(()),
            Err(why) => refuse(pod, why),
        }
    }

    async fn check(&self, review: &Review<'_>, pod: Option<&Value>, _: Option<&Value>) -> Result<(), Status> {
        let Some(pod) = pod else { return Ok(()) };
        let own = pod.at("spec").at("overhead");
        if own.is_null() && pod.at("spec").text("runtimeClassName").is_empty() {
            return Ok(());
        }
        let class = class(review, pod).await?;
        let overhead = class.as_ref().map_or(&Value::Null, |class| class.at("overhead"));
        let why = match (overhead.is_null(), own.is_null()) {
            (true, false) => NO_OVERHEAD,
            (false, _) if overhead.at("podFixed") != own => OTHER_OVERHEAD,
            _ => return Ok(()),
        };
        Err(review.forbidden(Some(pod), why))
    }
}

/// Returns the class that a pod names.
async fn class(review: &Review<'_>, pod: &Value) -> Result<Option<Value>, Status> {
    let name = pod.at("spec").text("runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    let found = review.find("node.k8s.io", "runtimeclasses", name).await?;
    let missing = || review.forbidden(Some(pod), format!("pod rejected: RuntimeClass {name:?} not found"));
    found.ok_or_else(missing).map(Some)
}

/// Adds the class's scheduling constraints to a pod.
fn schedule(spec: &mut Value, scheduling: &Value) -> Result<(), String> {
    let wanted = scheduling.map("nodeSelector").cloned().unwrap_or_else(Map::new);
    for (key, value) in wanted {
        let own = spec.at("nodeSelector").at(&key);
        if !own.is_null() && *own != value {
            let (value, own) = (value.as_str().unwrap_or_default(), own.as_str().unwrap_or_default());
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        spec.object_mut("nodeSelector").set(&key, value);
    }
    let more = scheduling.list("tolerations");
    if !more.is_empty() {
        let all: Vec<Value> = spec.list("tolerations").iter().chain(more).cloned().collect();
        spec.set("tolerations", merged(&all));
    }
    Ok(())
}

/// Removes tolerations that others include.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let known = merged.iter().any(|other| includes(other, toleration));
        let later = all[at + 1..].iter().any(|other| other != toleration && includes(other, toleration));
        if !known && !later {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether one toleration tolerates everything another does.
fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let operator = |toleration: &'_ Value| match toleration.text("operator") {
        "" => "Equal".to_owned(),
        operator => operator.to_owned(),
    };
    let takes_all_keys = wide.text("key").is_empty() && operator(wide) == "Exists";
    if wide.text("key") != narrow.text("key") && !takes_all_keys {
        return false;
    }
    if wide.text("effect") != narrow.text("effect") && !wide.text("effect").is_empty() {
        return false;
    }
    if wide.text("effect") == "NoExecute"
        && let Some(seconds) = wide.int("tolerationSeconds")
        && narrow.int("tolerationSeconds").is_none_or(|narrow| narrow > seconds)
    {
        return false;
    }
    match operator(wide).as_str() {
        "Exists" => true,
        _ => operator(narrow) == "Equal" && wide.text("value") == narrow.text("value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_toleration_covered_by_another_is_omitted() {
        let all = json!({"operator": "Exists"});
        let one = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        assert_eq!(merged(&[one.clone(), all.clone()]), std::slice::from_ref(&all));
        assert_eq!(merged(&[all.clone(), one.clone()]), [all]);
        assert_eq!(merged(&[one.clone(), one.clone()]), [one]);
    }
}
