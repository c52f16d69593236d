//! The total resources of a pod's containers.

use serde_json::Value;

use super::is_sidecar;
use crate::json::Json;
use crate::kinds::resources;
use crate::quantity::Quantity;

/// Whether a resource can be set at the pod level.
pub(super) fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// Returns the total that a pod's containers need: the sum of those that run concurrently, or the maximum during
/// initialization.
pub(in crate::kinds) fn total(spec: &Value, field: &str) -> Vec<(String, Quantity)> {
    let mut running = Vec::new();
    for container in spec.list("containers") {
        add(&mut running, container.at("resources").at(field));
    }
    let (mut sidecars, mut initialization) = (Vec::new(), Vec::new());
    for container in spec.list("initContainers") {
        let list = container.at("resources").at(field);
        if is_sidecar(container) {
            add(&mut running, list);
            add(&mut sidecars, list);
            raise(&mut initialization, &sidecars);
        } else {
            let mut beside = sidecars.clone();
            add(&mut beside, list);
            raise(&mut initialization, &beside);
        }
    }
    raise(&mut running, &initialization);
    running
}

fn add(total: &mut Vec<(String, Quantity)>, list: &Value) {
    for (name, amount) in resources::amounts(list) {
        match total.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => sum.add(&amount),
            None => total.push((name.to_owned(), amount)),
        }
    }
}

fn raise(total: &mut Vec<(String, Quantity)>, other: &[(String, Quantity)]) {
    for (name, amount) in other {
        match total.iter_mut().find(|(known, _)| known == name) {
            Some((_, largest)) => *largest = *amount.max(largest),
            None => total.push((name.clone(), *amount)),
        }
    }
}
