//! What every node holds and has left.
//!
//! Follows the caches of nodes and pods, and runs ahead of them: a decided binding is assumed at once,
//! and confirmed or forgotten later.

use std::collections::{BTreeMap, BTreeSet};

use setpoint::{Metadata, Object};

use crate::affinity::Labels;
use crate::demand::{Amount, demand, demand_for_scoring};
use crate::view::{NodeSpec, NodeView, PodSpec, PodView, Port};

/// A node and what is on it.
#[derive(Debug, Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) spec: NodeSpec,
    pub(crate) allocatable: Amount,
    pub(crate) requested: Amount,
    /// The same with scoring's floor for pods that ask for nothing.
    pub(crate) requested_for_scoring: Amount,
    pub(crate) ports: BTreeSet<Port>,
    /// How many pods of each controller are here, for spreading replicas.
    pub(crate) pods_by_owner: BTreeMap<Box<str>, usize>,
    /// The node object is there; pods may be seen before it.
    registered: bool,
}

/// What one pod takes on its node.
#[derive(Debug)]
struct Held {
    node: String,
    amount: Amount,
    amount_for_scoring: Amount,
    ports: Vec<Port>,
    owner: Option<Box<str>>,
}

/// All nodes, in name order, and the pods on them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    nodes: BTreeMap<String, NodeInfo>,
    held: BTreeMap<Box<str>, Held>,
    /// Where the next search starts, so that every node gets its turn.
    pub(crate) next_start: usize,
}

impl Ledger {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().filter(|node| node.registered)
    }

    pub(crate) fn put_node(&mut self, object: &Object, view: &NodeView) {
        let name = object.meta().name.to_string();
        let node = self.nodes.entry(name.clone()).or_default();
        node.name = name;
        node.labels =
            object.meta().labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        node.spec = view.spec.clone();
        node.allocatable = Amount::of(&view.status.allocatable);
        node.registered = true;
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.registered = false;
            self.drop_if_unused(name);
        }
    }

    /// Takes account of a pod that the cache shows: on its node, or no longer there.
    pub(crate) fn put_pod(&mut self, meta: &Metadata, view: &PodView) {
        if view.is_finished() {
            self.remove_pod(&meta.uid);
        } else if !view.spec.node_name.is_empty() && !self.is_on(&meta.uid, &view.spec.node_name) {
            self.remove_pod(&meta.uid);
            self.assume(meta, &view.spec, &view.spec.node_name);
        }
    }

    fn is_on(&self, uid: &str, node: &str) -> bool {
        self.held.get(uid).is_some_and(|held| held.node == node)
    }

    /// Whether the pod already has a node here, bound or assumed.
    pub(crate) fn holds(&self, uid: &str) -> bool {
        self.held.contains_key(uid)
    }

    /// Puts a pod on a node.
    pub(crate) fn assume(&mut self, meta: &Metadata, spec: &PodSpec, node_name: &str) {
        let held = Held {
            node: node_name.to_owned(),
            amount: demand(spec),
            amount_for_scoring: demand_for_scoring(spec),
            ports: host_ports(spec).cloned().collect(),
            owner: meta.controller().map(|owner| owner.uid.clone()),
        };
        let node = self.nodes.entry(node_name.to_owned()).or_default();
        node.requested.add(&held.amount);
        node.requested_for_scoring.add(&held.amount_for_scoring);
        node.ports.extend(held.ports.iter().cloned());
        if let Some(owner) = &held.owner {
            *node.pods_by_owner.entry(owner.clone()).or_default() += 1;
        }
        self.held.insert(meta.uid.clone(), held);
    }

    /// Takes a pod off its node; true if that made room.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(held) = self.held.remove(uid) else { return false };
        if let Some(node) = self.nodes.get_mut(&held.node) {
            node.release(&held);
        }
        self.drop_if_unused(&held.node);
        true
    }

    fn drop_if_unused(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|node| !node.registered && node.requested.pods == 0) {
            self.nodes.remove(name);
        }
    }
}

impl NodeInfo {
    fn release(&mut self, held: &Held) {
        self.requested.subtract(&held.amount);
        self.requested_for_scoring.subtract(&held.amount_for_scoring);
        for port in &held.ports {
            self.ports.remove(port);
        }
        if let Some(owner) = &held.owner
            && let Some(count) = self.pods_by_owner.get_mut(owner)
        {
            *count -= 1;
            if *count == 0 {
                self.pods_by_owner.remove(owner);
            }
        }
    }
}

/// The ports a pod wants on its node itself.
pub(crate) fn host_ports(spec: &PodSpec) -> impl Iterator<Item = &Port> {
    let sidecars = spec.init_containers.iter().filter(|container| container.restart_policy == "Always");
    sidecars.chain(&spec.containers).flat_map(|container| &container.ports).filter(|port| port.host_port != 0)
}
