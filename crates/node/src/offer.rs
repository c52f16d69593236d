//! Extended resources of a node: a resource that someone adds to a node's capacity also becomes allocatable, as with a
//! kubelet. Pure.

use serde_json::{Value, json};
use setpoint_placement::Resources;

/// Returns the change to a node's allocatable resources. A null removes one.
pub(crate) fn change(capacity: &Resources, allocatable: &Resources) -> Option<Value> {
    let missing =
        capacity.iter().filter(|(name, amount)| is_extended(name) && allocatable.get(*name) != Some(*amount));
    let left = allocatable.keys().filter(|name| is_extended(name) && !capacity.contains_key(*name));
    let changes = missing.map(|(name, amount)| (name.clone(), amount.clone()));
    let changes = changes.chain(left.map(|name| (name.clone(), Value::Null)));
    let changes: serde_json::Map<String, Value> = changes.collect();
    (!changes.is_empty()).then(|| json!({"status": {"allocatable": changes}}))
}

/// Whether the resource is an extended one, unknown to Kubernetes itself.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_others_follow_the_capacity() {
        let resources = |value: Value| serde_json::from_value::<Resources>(value).expect("resources");
        let check = |capacity: Value, allocatable: Value, expected: Value| {
            let change = change(&resources(capacity.clone()), &resources(allocatable));
            assert_eq!(
                change.map_or(Value::Null, |mut change| change["status"]["allocatable"].take()),
                expected
            );
        };
        check(json!({"cpu": "8", "e.com/gpu": "2"}), json!({"cpu": "7"}), json!({"e.com/gpu": "2"}));
        check(json!({"e.com/gpu": "3"}), json!({"e.com/gpu": "2"}), json!({"e.com/gpu": "3"}));
        check(json!({"cpu": "8"}), json!({"cpu": "7", "e.com/gpu": "2"}), json!({"e.com/gpu": null}));
        check(json!({"e.com/gpu": "2"}), json!({"e.com/gpu": "2"}), Value::Null);
    }
}
