//! What a pod asks of its node. Pure.

use setpoint_placement::{Amount, demand_of};

use crate::view::{Container, PodSpec};

/// What scoring assumes for a container that asks for nothing, so that such pods spread too.
const DEFAULT_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// What a pod asks of its node.
pub(crate) fn demand(spec: &PodSpec) -> Amount {
    demand_with(spec, |container| container.resources.requests.amount.clone())
}

/// The same with a floor for cpu and memory, as scoring sees it.
pub(crate) fn demand_for_scoring(spec: &PodSpec) -> Amount {
    demand_with(spec, |container| {
        let requests = &container.resources.requests;
        let mut amount = requests.amount.clone();
        if !requests.names_cpu {
            amount.cpu = DEFAULT_CPU;
        }
        if !requests.names_memory {
            amount.memory = DEFAULT_MEMORY;
        }
        amount
    })
}

fn demand_with(spec: &PodSpec, of: impl Fn(&Container) -> Amount) -> Amount {
    let is_sidecar = |container: &Container| container.restart_policy == "Always";
    demand_of(&spec.containers, &spec.init_containers, &spec.overhead.amount, is_sidecar, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_asks_for_the_larger_of_running_and_initializing() {
        let check = |spec: serde_json::Value, cpu: i64| {
            let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(demand(&spec).cpu, cpu, "{spec:?}");
        };
        let c = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        check(json!({"containers": [c("1"), c("500m")]}), 1500);
        check(json!({"containers": [c("1")], "initContainers": [c("3"), c("2")]}), 3000);
        check(json!({"containers": [c("1")], "initContainers": [sidecar("1"), c("3")]}), 4000);
        check(json!({"containers": [c("3")], "initContainers": [sidecar("1"), c("2")]}), 4000);
        check(json!({"containers": [c("1")], "overhead": {"cpu": "250m"}}), 1250);
        check(json!({"containers": [{}]}), 0);
    }
}
