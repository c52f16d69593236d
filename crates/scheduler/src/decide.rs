//! The decision for one pod. Pure: ledger, pod and a random draw in, node or reasons out.

use std::collections::BTreeMap;

use setpoint::Metadata;

use crate::demand::{demand, demand_for_scoring};
use crate::filter::obstacles;
use crate::ledger::{Ledger, NodeInfo};
use crate::score::scores;
use crate::view::PodSpec;

/// Where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Bind {
        node: String,
    },
    /// Nowhere, and why, in the words of v1.34.
    FitsNowhere {
        message: String,
    },
}

/// A search is over when this many nodes fit, in small clusters all.
const ENOUGH_NODES: usize = 100;

/// How many fitting nodes are enough: the larger the cluster, the smaller the share.
fn enough(nodes: usize) -> usize {
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    if nodes < ENOUGH_NODES { nodes } else { (nodes * percent / 100).max(ENOUGH_NODES) }
}

/// Finds a node. `draw` in `0..n` breaks ties between `n` equally good nodes.
pub(crate) fn decide(
    meta: &Metadata,
    spec: &PodSpec,
    ledger: &mut Ledger,
    draw: impl Fn(usize) -> usize,
) -> Decision {
    let search = search(spec, ledger);
    if search.candidates.is_empty() {
        return Decision::FitsNowhere { message: search.message() };
    }
    let owner = meta.controller().map(|owner| &*owner.uid);
    let scores = scores(spec, &demand_for_scoring(spec), owner, &search.candidates);
    let best = scores.iter().copied().max().unwrap_or(0);
    let tied: Vec<&&NodeInfo> = search
        .candidates
        .iter()
        .zip(&scores)
        .filter(|(_, score)| **score == best)
        .map(|(node, _)| node)
        .collect();
    let node = tied[draw(tied.len()).min(tied.len() - 1)].name.clone();
    let (looked_at, nodes) = (search.looked_at, search.nodes);
    ledger.next_start = (ledger.next_start + looked_at) % nodes;
    Decision::Bind { node }
}

struct Search<'a> {
    nodes: usize,
    looked_at: usize,
    candidates: Vec<&'a NodeInfo>,
    reasons: BTreeMap<String, usize>,
}

fn search<'a>(spec: &PodSpec, ledger: &'a Ledger) -> Search<'a> {
    let nodes: Vec<&NodeInfo> = ledger.nodes().collect();
    let demand = demand(spec);
    let mut search =
        Search { nodes: nodes.len(), looked_at: 0, candidates: Vec::new(), reasons: BTreeMap::new() };
    let enough = enough(nodes.len());
    for offset in 0..nodes.len() {
        let node = nodes[(ledger.next_start + offset) % nodes.len()];
        search.looked_at += 1;
        let obstacles = obstacles(spec, &demand, node);
        if obstacles.is_empty() {
            search.candidates.push(node);
        }
        for reason in obstacles {
            *search.reasons.entry(reason).or_default() += 1;
        }
        if search.candidates.len() >= enough {
            break;
        }
    }
    search
}

impl Search<'_> {
    fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".into();
        }
        let mut reasons: Vec<String> =
            self.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        format!("0/{} nodes are available: {}.", self.nodes, reasons.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::NodeView;
    use serde_json::{Value, json};
    use setpoint::Object;

    fn ledger(nodes: &[Value]) -> Ledger {
        let mut ledger = Ledger::default();
        for node in nodes {
            let object = Object::from_json(node.to_string().into()).expect("a node");
            let view: NodeView = object.decode().expect("a node");
            ledger.put_node(&object, &view);
        }
        ledger
    }

    fn node(name: &str, spec: Value, cpu: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": spec,
               "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}})
    }

    fn place(ledger: &mut Ledger, spec: Value) -> Decision {
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        decide(&Metadata::default(), &spec, ledger, |_| 0)
    }

    fn wants(cpu: &str) -> Value {
        json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]})
    }

    fn nowhere(message: &str) -> Decision {
        Decision::FitsNowhere { message: message.into() }
    }

    #[test]
    fn the_reasons_are_counted_and_told_in_v134s_words() {
        assert_eq!(place(&mut ledger(&[]), wants("1")), nowhere("no nodes available to schedule pods"));
        let mut three = ledger(&[
            node("a", json!({"unschedulable": true}), "4"),
            node("b", json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}), "4"),
            node("c", json!({}), "1"),
        ]);
        let message = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {k: v}, \
                       1 node(s) were unschedulable.";
        assert_eq!(place(&mut three, wants("2")), nowhere(message));
    }

    #[test]
    fn an_assumed_pod_takes_its_room_at_once() {
        let mut one = ledger(&[node("a", json!({}), "1")]);
        assert_eq!(place(&mut one, wants("1")), Decision::Bind { node: "a".into() });
        let meta = Metadata { uid: "u".into(), ..Metadata::default() };
        one.assume(&meta, &serde_json::from_value(wants("1")).expect("a spec"), "a");
        assert_eq!(place(&mut one, wants("1")), nowhere("0/1 nodes are available: 1 Insufficient cpu."));
        assert!(one.remove_pod("u"));
        assert_eq!(place(&mut one, wants("1")), Decision::Bind { node: "a".into() });
    }

    #[test]
    fn replicas_of_a_controller_are_spread() {
        let nodes: Vec<Value> = (0..3).map(|i| node(&format!("n{i}"), json!({}), "8")).collect();
        let mut ledger = ledger(&nodes);
        let spec: PodSpec = serde_json::from_value(wants("1m")).expect("a spec");
        let mut chosen = Vec::new();
        for index in 0..3 {
            let pod = json!({"metadata": {"name": "p", "uid": format!("u{index}"), "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]}});
            let object = Object::from_json(pod.to_string().into()).expect("a pod");
            let Decision::Bind { node } = decide(object.meta(), &spec, &mut ledger, |_| 0) else {
                panic!("fits")
            };
            ledger.assume(object.meta(), &spec, &node);
            chosen.push(node);
        }
        chosen.sort();
        assert_eq!(chosen, ["n0", "n1", "n2"]);
    }

    #[test]
    fn large_clusters_are_searched_in_part() {
        let check = |nodes, expected| assert_eq!(enough(nodes), expected);
        check(3, 3);
        check(100, 100);
        check(1000, 420);
        check(6000, 300);
    }
}
