//! Whether a node accepts a pod that was not scheduled. Pure.
//!
//! Pods placed by the scheduler fit on their node. A pod created with a `nodeName` has to be checked by the node
//! itself, with the kubelet's checks, order and messages.

use std::collections::BTreeMap;

use serde::Deserialize;
use setpoint::Labels;
use setpoint_placement::{
    Amount, NO_EXECUTE, NodeAffinity, PodLevel, Port, Requests, Taint, Toleration, demand_of, untolerated,
};

/// The pod fields that admission checks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Needs {
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: Requests,
    /// Pod-level resources.
    resources: Requirements,
    node_selector: BTreeMap<String, String>,
    affinity: Affinity,
    tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: NodeAffinity,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    restart_policy: String,
    resources: Requirements,
    ports: Vec<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Requirements {
    requests: Requests,
}

/// The node and its pods.
pub(crate) struct Host<'a> {
    pub(crate) name: &'a str,
    pub(crate) labels: &'a Labels,
    pub(crate) taints: &'a [Taint],
    pub(crate) allocatable: Amount,
    pub(crate) others: Vec<Needs>,
}

/// Why a pod is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Returns why a node rejects a pod, or `None` if it accepts it.
pub(crate) fn rejection(pod: &Needs, host: &Host<'_>) -> Option<Rejection> {
    shortage(pod, host).or_else(|| {
        let (predicate, why) = misplaced(pod, host)?;
        Some(Rejection { reason: predicate.into(), message: format!("Predicate {predicate} failed: {why}") })
    })
}

/// Returns the resource that the node lacks for a pod.
pub(crate) fn shortage(pod: &Needs, host: &Host<'_>) -> Option<Rejection> {
    let mut used = Amount::default();
    host.others.iter().for_each(|other| used.add(&other.demand()));
    let (wants, has) = (pod.demand(), &host.allocatable);
    let built_in = [
        ("pods", "OutOfpods", wants.pods, used.pods, has.pods),
        ("cpu", "OutOfcpu", wants.cpu, used.cpu, has.cpu),
        ("memory", "OutOfmemory", wants.memory, used.memory, has.memory),
        (
            "ephemeral-storage",
            "OutOfephemeral-storage",
            wants.ephemeral_storage,
            used.ephemeral_storage,
            has.ephemeral_storage,
        ),
    ];
    let lacks = |(_, _, wants, used, has): &&(&str, &str, i64, i64, i64)| *wants > 0 && wants + used > *has;
    let (name, reason, wants, used, has) = built_in.iter().find(lacks)?;
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {wants}, used: {used}, capacity: {has}"
    );
    Some(Rejection { reason: (*reason).into(), message })
}

fn misplaced(pod: &Needs, host: &Host<'_>) -> Option<(&'static str, &'static str)> {
    let spec = &pod.spec;
    let selected = spec.node_selector.iter().all(|(key, value)| host.labels.get(key) == Some(value));
    if !selected || !spec.affinity.node_affinity.allows(host.name, host.labels) {
        return Some(("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    let taken =
        |port: &Port| host.others.iter().flat_map(Needs::host_ports).any(|other| port.clashes_with(other));
    if pod.host_ports().any(taken) {
        return Some(("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
    }
    untolerated(host.taints, &spec.tolerations, &[NO_EXECUTE])
        .map(|_| ("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
}

impl Needs {
    pub(crate) fn demand(&self) -> Amount {
        let Spec { containers, init_containers, overhead, resources, .. } = &self.spec;
        let requests = |container: &Container| container.resources.requests.amount.clone();
        let whole = PodLevel { requests: &resources.requests, overhead: &overhead.amount };
        demand_of(containers, init_containers, whole, Container::is_sidecar, requests)
    }

    fn host_ports(&self) -> impl Iterator<Item = &Port> {
        let sidecars = self.spec.init_containers.iter().filter(|container| container.is_sidecar());
        let ports = sidecars.chain(&self.spec.containers).flat_map(|container| &container.ports);
        ports.filter(|port| port.host_port != 0)
    }
}

impl Container {
    fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn needs(spec: Value) -> Needs {
        serde_json::from_value(json!({"spec": spec})).expect("a pod")
    }

    fn wants(requests: Value) -> Value {
        json!({"containers": [{"resources": {"requests": requests}}]})
    }

    fn port(port: u16) -> Value {
        json!({"containers": [{"ports": [{"hostPort": port}]}]})
    }

    #[test]
    fn a_pod_is_admitted_only_where_it_fits_and_matches() {
        let labels: Labels = serde_json::from_value(json!({"zone": "a"})).expect("labels");
        let check = |pod: Value, others: &[Value], expected: Option<(&str, &str)>| {
            let allocatable =
                serde_json::from_value(json!({"cpu": "2", "memory": "1Gi", "pods": "2"})).expect("resources");
            let taints: Vec<Taint> =
                serde_json::from_value(json!([{"key": "k", "effect": "NoSchedule"}])).expect("taints");
            let host = Host {
                name: "n",
                labels: &labels,
                taints: &taints,
                allocatable: Amount::of(&allocatable),
                others: others.iter().cloned().map(needs).collect(),
            };
            let found = rejection(&needs(pod), &host);
            let expected = expected
                .map(|(reason, message)| Rejection { reason: reason.into(), message: message.into() });
            assert_eq!(found, expected);
        };
        let lacks = "Node didn't have enough resource: ";
        check(wants(json!({"cpu": "2"})), &[], None);
        let cpu = format!("{lacks}cpu, requested: 1500, used: 1000, capacity: 2000");
        check(wants(json!({"cpu": "1500m"})), &[wants(json!({"cpu": "1"}))], Some(("OutOfcpu", &cpu)));
        let memory = format!("{lacks}memory, requested: 2147483648, used: 0, capacity: 1073741824");
        check(wants(json!({"memory": "2Gi"})), &[], Some(("OutOfmemory", &memory)));
        let pods = format!("{lacks}pods, requested: 1, used: 2, capacity: 2");
        check(json!({}), &[json!({}), json!({})], Some(("OutOfpods", &pods)));
        let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(port(80), &[port(80)], Some(("NodePorts", ports)));
        check(port(81), &[port(80)], None);
        let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(json!({"nodeSelector": {"zone": "b"}}), &[], Some(("NodeAffinity", affinity)));
    }
}
