//! Resource requests of pods. Pure.

use setpoint_placement::{Amount, PodLevel, demand_of};

use crate::view::{Container, PodView, RESIZE_PENDING};

/// The requests that scoring assumes for a container without any, so that such pods are spread too.
const DEFAULT_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Returns a pod's resource requests.
pub(crate) fn demand(pod: &PodView) -> Amount {
    demand_with(pod, |container| asked(pod, container))
}

/// Returns a pod's requests as scoring sees them: with a minimum for cpu and memory, except for pod-level requests.
pub(crate) fn demand_for_scoring(pod: &PodView) -> Amount {
    let whole = &pod.spec.resources.requests;
    let (cpu, memory) = match whole.names_cpu || whole.names_memory || !whole.amount.extended.is_empty() {
        false => (DEFAULT_CPU, DEFAULT_MEMORY),
        true => {
            let named = |names: fn(&Container) -> bool| {
                pod.spec.containers.iter().chain(&pod.spec.init_containers).any(names)
            };
            let cpu = whole.names_cpu || named(|container| container.resources.requests.names_cpu);
            let memory = whole.names_memory || named(|container| container.resources.requests.names_memory);
            (if cpu { 0 } else { DEFAULT_CPU }, if memory { 0 } else { DEFAULT_MEMORY })
        }
    };
    demand_with(pod, |container| {
        let requests = &container.resources.requests;
        let mut amount = asked(pod, container);
        if !requests.names_cpu {
            amount.cpu = cpu;
        }
        if !requests.names_memory {
            amount.memory = memory;
        }
        amount
    })
}

/// Returns a container's effective request. While a resize is in progress this is the larger of spec and status, unless
/// the resize is infeasible.
fn asked(pod: &PodView, container: &Container) -> Amount {
    let wanted = || container.resources.requests.amount.clone();
    let resized = &pod.status.container_statuses.0;
    let resized = resized.iter().chain(&pod.status.init_container_statuses.0);
    let Some(has) = resized.filter(|status| status.name == container.name).find_map(|status| {
        let resources = status.resources.as_ref()?;
        let mut has = resources.requests.amount.clone();
        has.raise_to(&status.allocated_resources.amount);
        Some(has)
    }) else {
        return wanted();
    };
    let infeasible = |pod: &PodView| {
        let mut conditions = pod.status.conditions.iter();
        conditions.any(|one| one.condition_type == RESIZE_PENDING && one.reason == "Infeasible")
    };
    let mut amount = if infeasible(pod) { Amount::default() } else { wanted() };
    amount.raise_to(&has);
    amount
}

fn demand_with(pod: &PodView, of: impl Fn(&Container) -> Amount) -> Amount {
    let spec = &pod.spec;
    let is_sidecar = |container: &Container| container.restart_policy == "Always";
    let whole = PodLevel { requests: &spec.resources.requests, overhead: &spec.overhead.amount };
    demand_of(&spec.containers, &spec.init_containers, whole, is_sidecar, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_requests_the_larger_of_running_and_initializing() {
        let check = |spec: serde_json::Value, cpu: i64| {
            let pod: PodView = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            assert_eq!(demand(&pod).cpu, cpu, "{pod:?}");
        };
        let c = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        check(json!({"containers": [c("1"), c("500m")]}), 1500);
        check(json!({"containers": [c("1")], "initContainers": [c("3"), c("2")]}), 3000);
        check(json!({"containers": [c("1")], "initContainers": [sidecar("1"), c("3")]}), 4000);
        check(json!({"containers": [c("3")], "initContainers": [sidecar("1"), c("2")]}), 4000);
        check(json!({"containers": [c("1")], "overhead": {"cpu": "250m"}}), 1250);
        check(json!({"containers": [{}]}), 0);
        let whole = |cpu: &str| json!({"requests": {"cpu": cpu}});
        check(json!({"containers": [c("1")], "resources": whole("2"), "overhead": {"cpu": "1"}}), 3000);
        check(json!({"containers": [c("1")], "resources": {"requests": {"memory": "1"}}}), 1000);
    }

    #[test]
    fn a_container_counts_for_the_larger_of_allocated_and_requested() {
        let check = |asks: &str, has: &str, allocated: &str, reason: &str, expected: i64| {
            let status = json!({"name": "c", "resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": allocated}});
            let pod: PodView = serde_json::from_value(json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": asks}}}]},
                "status": {"containerStatuses": [{"name": "other", "ready": true}, status],
                           "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]},
            }))
            .expect("a pod");
            assert_eq!(demand(&pod).cpu, expected, "{asks} {has} {allocated} {reason}");
        };
        check("1", "1", "1", "", 1000);
        check("1", "2", "1", "", 2000);
        check("1", "1", "2", "", 2000);
        check("4", "1", "1", "Deferred", 4000);
        check("4", "1", "1", "Infeasible", 1000);
    }

    #[test]
    fn scoring_assumes_defaults_where_nothing_is_requested() {
        let check = |spec: serde_json::Value, cpu: i64| {
            let pod: PodView = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            assert_eq!(demand_for_scoring(&pod).cpu, cpu, "{pod:?}");
        };
        check(json!({"containers": [{}, {}]}), 200);
        check(json!({"containers": [{}, {}], "resources": {"requests": {"cpu": "1"}}}), 1000);
        check(json!({"containers": [{}], "resources": {"requests": {"memory": "1"}}}), 100);
    }
}
