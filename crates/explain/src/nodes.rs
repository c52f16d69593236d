//! Nodes: lost ones, pressure, taints, cordons, and drains that a disruption budget blocks.

use crate::disruption;
use crate::inquiry::{Inquiry, node_of};
use crate::kinds::LEASE;
use crate::leases;
use crate::model::{Evidence, Node};
use crate::pods;
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::count;

const PRESSURES: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, host: &'a Item) -> Node {
    let conditions = host.conditions();
    let bad = conditions.iter().filter(|one| (one.kind == "Ready") != one.is_true());
    let taints = taints(host);
    let node = node_of(host)
        .evidence(bad.map(|one| one.evidence()))
        .evidence((!taints.is_empty()).then(|| Evidence::field("spec.taints", taints.join(", "))));
    match host.condition("Ready") {
        None => {
            return node
                .blocked("its kubelet has never reported", "start the kubelet, and check its credentials");
        }
        Some(ready) if ready.is_true() => {}
        Some(ready) => return not_ready(inquiry, host, node, ready),
    }
    if let Some(pressure) = conditions.iter().find(|one| PRESSURES.contains(&one.kind) && one.is_true()) {
        let text = format!("has {} ({}): {}", pressure.kind, pressure.reason, pressure.message);
        let fix = match pressure.kind {
            "NetworkUnavailable" => "check the network plugin and the routes of the node",
            _ => "free the resource: the kubelet evicts pods and accepts no new ones until then",
        };
        return node.blocked(text, fix);
    }
    if host.flag("/spec/unschedulable") {
        return cordoned(inquiry, host, node);
    }
    let repelling: Vec<&String> = taints
        .iter()
        .filter(|taint| taint.ends_with(":NoSchedule") || taint.ends_with(":NoExecute"))
        .collect();
    if let Some(taint) = repelling.iter().find(|taint| taint.contains("uninitialized")) {
        let text = format!("waits to be initialized by a cloud controller manager (taint {taint})");
        return node.blocked(
            text,
            "run the cloud controller manager, or start the kubelet without --cloud-provider=external",
        );
    }
    match repelling.first() {
        Some(taint) => node.converged(format!("ready, but only for pods that tolerate {taint}")),
        None => node.converged("ready"),
    }
}

/// Returns the taints in kubectl's format.
fn taints(host: &Item) -> Vec<String> {
    let written = |taint: &serde_json::Value| match taint.text("/value") {
        "" => format!("{}:{}", taint.text("/key"), taint.text("/effect")),
        value => format!("{}={value}:{}", taint.text("/key"), taint.text("/effect")),
    };
    host.items("/spec/taints").iter().map(written).collect()
}

fn not_ready<'a>(
    inquiry: &Inquiry<'a>,
    host: &'a Item,
    node: Node,
    ready: crate::read::Condition<'_>,
) -> Node {
    let since = inquiry.since(ready.time);
    if ready.is_false() {
        let text = format!("has been NotReady for {since} ({}): {}", ready.reason, ready.message);
        return node.blocked(text, "repair what the kubelet reports");
    }
    let lease = inquiry.get(&LEASE, Some("kube-node-lease"), host.name()).found();
    let heartbeat = lease.and_then(leases::renewed);
    let heartbeat =
        heartbeat.map(|at| format!(", last heartbeat {} ago", inquiry.since(Some(at)))).unwrap_or_default();
    let text = format!("is NotReady: its kubelet has not reported for {since} ({}){heartbeat}", ready.reason);
    node.blocked(text, "restart the node or its kubelet, or delete the Node if it is gone").next(
        "its pods are evicted 5 minutes after it was lost, unless they tolerate the taint for longer",
        None,
    )
}

/// A cordoned node. If it is being drained, a budget may keep pods on it.
fn cordoned<'a>(inquiry: &Inquiry<'a>, host: &'a Item, node: Node) -> Node {
    let pods = inquiry.snapshot.pods_on(host.name()).unwrap_or_default();
    let is_movable = |pod: &&&'a Item| {
        let owners = &pod.object.meta().owner_references;
        !pods::has_ended(pod)
            && !owners.iter().any(|owner| &*owner.kind == "DaemonSet" || &*owner.kind == "Node")
    };
    let left: Vec<&'a Item> = pods.iter().filter(is_movable).copied().collect();
    let budgets = left.iter().flat_map(|pod| disruption::blocking(inquiry, pod));
    let mut blocking: Vec<&'a Item> = Vec::new();
    for budget in budgets {
        if !blocking.iter().any(|known| known.uid() == budget.uid()) {
            blocking.push(budget);
        }
    }
    let uncordon = format!("kubectl uncordon {}", host.name());
    let node = node.evidence([Evidence::field("spec.unschedulable", true)]);
    let left = count(left.len(), "pod");
    match blocking.is_empty() {
        true => {
            let text =
                format!("is cordoned (unschedulable): no new pods are scheduled to it, {left} left on it");
            node.blocked(text, format!("finish the maintenance, then {uncordon}"))
        }
        false => {
            let text = format!("cannot be drained: {left} left on it, protected by a disruption budget");
            let children =
                blocking.iter().take(crate::inquiry::MAX_GROUPS).map(|budget| inquiry.explain(budget));
            node.blocked(text, format!("let the budget allow an eviction, or {uncordon}")).children(children)
        }
    }
}
