//! Amounts of resources: what a pod asks for, what a node has. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use setpoint_quantity::Quantity;

use crate::view::{Container, PodSpec, Resources};

/// An amount of every resource: cpu in thousandths of a core, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral_storage: i64,
    pub(crate) pods: i64,
    /// Resources beyond the built-in ones; empty for almost every pod.
    pub(crate) extended: BTreeMap<String, i64>,
}

/// What scoring assumes for a container that asks for nothing, so that such pods spread too.
const DEFAULT_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

impl Amount {
    pub(crate) fn of(resources: &Resources) -> Self {
        let mut amount = Self::default();
        for (name, quantity) in resources {
            *amount.entry(name) = in_units(name, quantity);
        }
        amount
    }

    fn entry(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.ephemeral_storage,
            "pods" => &mut self.pods,
            _ => self.extended.entry(name.to_owned()).or_default(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, |mine, theirs| mine.saturating_add(theirs));
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, |mine, theirs| mine.saturating_sub(theirs));
    }

    fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.extended {
            let mine = self.extended.entry(name.clone()).or_default();
            *mine = with(*mine, *amount);
        }
    }
}

/// A quantity that cannot be read counts as nothing: the API server has refused it long before.
fn in_units(name: &str, quantity: &Value) -> i64 {
    let Ok(quantity) = Quantity::of(quantity) else { return 0 };
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// What a pod asks of its node: the larger of what its containers need together and what any step of
/// its initialization needs, sidecars counted from their start, plus the overhead of its runtime class.
pub(crate) fn demand(spec: &PodSpec) -> Amount {
    demand_with(spec, |container| Amount::of(&container.resources.requests))
}

/// The same with a floor for cpu and memory, as scoring sees it.
pub(crate) fn demand_for_scoring(spec: &PodSpec) -> Amount {
    demand_with(spec, |container| {
        let requests = &container.resources.requests;
        let mut amount = Amount::of(requests);
        if !requests.contains_key("cpu") {
            amount.cpu = DEFAULT_CPU;
        }
        if !requests.contains_key("memory") {
            amount.memory = DEFAULT_MEMORY;
        }
        amount
    })
}

fn demand_with(spec: &PodSpec, of: impl Fn(&Container) -> Amount) -> Amount {
    let mut total = Amount::default();
    for container in &spec.containers {
        total.add(&of(container));
    }
    let mut sidecars = Amount::default();
    let mut initialization = Amount::default();
    for container in &spec.init_containers {
        let mut step = of(container);
        if container.restart_policy == "Always" {
            sidecars.add(&step);
            initialization.raise_to(&sidecars);
        } else {
            step.add(&sidecars);
            initialization.raise_to(&step);
        }
    }
    total.add(&sidecars);
    total.raise_to(&initialization);
    total.add(&Amount::of(&spec.overhead));
    total.pods = 1;
    total
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
