//! Allocated and free resources of every node.
//!
//! Follows the node and pod caches and runs ahead of them: a binding is assumed as soon as it is decided, then
//! confirmed or forgotten. Nominations work the same way: the space that preemption frees is reserved for the nominated
//! pod.

use std::collections::BTreeMap;

use setpoint::{Labels, Object};
use setpoint_placement::{Amount, Port};

use crate::demand::{demand, demand_for_scoring};
use crate::devices::InUse;
use crate::label_index::LabelIndex;
use crate::view::{NodeSpec, NodeView, Pod, PodView};

/// A node and its pods.
#[derive(Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) spec: NodeSpec,
    pub(crate) allocatable: Amount,
    /// Image sizes by name.
    pub(crate) images: BTreeMap<String, i64>,
    pub(crate) usage: NodeUsage,
    /// By uid.
    pub(crate) pods: BTreeMap<Box<str>, PodInfo>,
    /// The number of pods with inter-pod affinity or anti-affinity.
    affine: usize,
    /// Whether the node object exists. Pods may be seen before their node.
    registered: bool,
}

/// The allocated part of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeUsage {
    pub(crate) requested: Amount,
    /// Like `requested`, with scoring's minimum for pods without requests.
    pub(crate) requested_for_scoring: Amount,
    pub(crate) ports: Vec<Port>,
}

/// A pod on a node, and the resources it takes there.
pub(crate) struct PodInfo {
    pub(crate) pod: Pod,
    amount: Amount,
    amount_for_scoring: Amount,
}

/// A pod nominated for a node by preemption.
pub(crate) struct Nominee {
    pub(crate) node: String,
    pub(crate) pod: Pod,
}

/// All nodes, in name order, and the pods on them.
#[derive(Default)]
pub(crate) struct Ledger {
    nodes: BTreeMap<String, NodeInfo>,
    /// The node of every pod that has one, by pod uid.
    nodes_by_pod: BTreeMap<Box<str>, String>,
    /// Pods on nodes by their labels, for topology spread.
    pub(crate) label_index: LabelIndex,
    /// By uid. Bounded by the pods that wait for their victims to terminate.
    nominees: BTreeMap<Box<str>, Nominee>,
    /// The number of nodes that have each image.
    image_spread: BTreeMap<String, usize>,
    /// The number of pods on nodes with inter-pod affinity. If it is zero, the affinity checks are skipped.
    affine: usize,
    /// Devices allocated to claims.
    pub(crate) devices: InUse,
    /// Where the next search starts. It rotates so that every node gets its turn.
    pub(crate) next_start: usize,
}

impl Ledger {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().filter(|node| node.registered)
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name).filter(|node| node.registered)
    }

    /// Lists nodes with pods that have inter-pod affinity.
    pub(crate) fn affine_nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        let any = self.affine > 0;
        self.nodes().take_while(move |_| any).filter(|node| node.affine > 0)
    }

    /// Returns the number of nodes that have an image.
    pub(crate) fn spread_of_image(&self, image: &str) -> usize {
        self.image_spread.get(image).copied().unwrap_or(0)
    }

    pub(crate) fn knows_images(&self) -> bool {
        !self.image_spread.is_empty()
    }

    pub(crate) fn put_node(&mut self, object: &Object, view: &NodeView) {
        let name = object.meta().name.to_string();
        let node = self.nodes.entry(name.clone()).or_default();
        node.name = name;
        node.labels = object.meta().labels.clone();
        node.spec = view.spec.clone();
        node.allocatable = Amount::of(&view.status.allocatable);
        node.registered = true;
        let names =
            view.status.images.iter().flat_map(|image| image.names.iter().map(move |name| (name, image)));
        let images = names.map(|(name, image)| (name.clone(), image.size_bytes)).collect();
        let before = std::mem::replace(&mut node.images, images);
        for image in node.images.keys() {
            *self.image_spread.entry(image.clone()).or_default() += 1;
        }
        self.forget_images(&before);
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.registered = false;
            let images = std::mem::take(&mut node.images);
            self.forget_images(&images);
            self.drop_if_unused(name);
        }
    }

    fn forget_images(&mut self, images: &BTreeMap<String, i64>) {
        for image in images.keys() {
            decrement(&mut self.image_spread, image);
        }
    }

    /// Applies a pod from the cache: bound, nominated or finished. For a pod that was already on its node, returns the
    /// resources it released.
    pub(crate) fn put_pod(&mut self, pod: &Pod) -> Option<Amount> {
        let uid = &pod.meta().uid;
        if pod.is_finished() {
            self.remove_pod(uid);
        } else if pod.spec.node_name.is_empty() {
            self.put_nomination(pod);
        } else if self.nodes_by_pod.get(uid) == Some(&pod.spec.node_name) {
            return self.refresh(pod);
        } else {
            self.remove_pod(uid);
            self.assume(pod, &pod.spec.node_name);
        }
        None
    }

    /// Updates a pod on its node. Returns the difference to its previous requests if it was resized.
    fn refresh(&mut self, pod: &Pod) -> Option<Amount> {
        let node = self.nodes.get_mut(&pod.spec.node_name)?;
        let pod_info = node.pods.get_mut(&pod.meta().uid)?;
        let before = std::mem::replace(pod_info, PodInfo::new(pod.clone()));
        let resized = before.amount != pod_info.amount;
        if resized || before.amount_for_scoring != pod_info.amount_for_scoring {
            node.usage.subtract(&before);
            node.usage.add(pod_info);
        }
        let freed = resized.then(|| {
            let mut freed = before.amount.clone();
            freed.subtract(&pod_info.amount);
            freed
        });
        let (before, after) = (before.pod.meta(), pod.meta());
        if before.labels != after.labels || before.is_being_deleted() != after.is_being_deleted() {
            self.label_index.remove_pod_at(before, &pod.spec.node_name);
            self.label_index.add_pod(after, &pod.spec.node_name);
        }
        freed
    }

    fn put_nomination(&mut self, pod: &Pod) {
        match pod.nominated_node() {
            Some(node) => self.nominate(pod, node),
            None if self.nominees.is_empty() => {}
            None => _ = self.nominees.remove(&pod.meta().uid),
        }
    }

    /// Nominates a pod for a node.
    pub(crate) fn nominate(&mut self, pod: &Pod, node: &str) {
        self.nominees.insert(pod.meta().uid.clone(), Nominee { node: node.to_owned(), pod: pod.clone() });
    }

    pub(crate) fn forget_nomination(&mut self, uid: &str) {
        self.nominees.remove(uid);
    }

    /// Lists the pods nominated for a node.
    pub(crate) fn nominees<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.nominees.values().filter(move |nominee| nominee.node == node).map(|nominee| &nominee.pod)
    }

    /// Returns the pod's node, bound or assumed.
    pub(crate) fn node_of(&self, uid: &str) -> Option<&str> {
        self.nodes_by_pod.get(uid).map(String::as_str)
    }

    /// Whether the pod has a node, bound or assumed.
    pub(crate) fn holds(&self, uid: &str) -> bool {
        self.nodes_by_pod.contains_key(uid)
    }

    /// Puts a pod on a node.
    pub(crate) fn assume(&mut self, pod: &Pod, node_name: &str) {
        self.nominees.remove(&pod.meta().uid);
        let node = self.nodes.entry(node_name.to_owned()).or_default();
        let pod_info = PodInfo::new(pod.clone());
        node.usage.add(&pod_info);
        self.label_index.add_pod(pod.meta(), node_name);
        let affine = usize::from(pod.spec.is_affine());
        node.affine += affine;
        self.affine += affine;
        node.pods.insert(pod.meta().uid.clone(), pod_info);
        self.nodes_by_pod.insert(pod.meta().uid.clone(), node_name.to_owned());
    }

    /// Removes a pod from its node. Returns whether that freed space, reserved space included.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> bool {
        let was_awaited = self.nominees.remove(uid).is_some();
        let Some(node_name) = self.nodes_by_pod.remove(uid) else { return was_awaited };
        if let Some(node) = self.nodes.get_mut(&node_name)
            && let Some(pod_info) = node.pods.remove(uid)
        {
            node.usage.subtract(&pod_info);
            self.label_index.remove_pod_at(pod_info.pod.meta(), &node_name);
            let affine = usize::from(pod_info.pod.spec.is_affine());
            node.affine -= affine;
            self.affine -= affine;
        }
        self.drop_if_unused(&node_name);
        true
    }

    fn drop_if_unused(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|node| !node.registered && node.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }
}

/// Decrements a count, and removes it when it reaches zero.
pub(crate) fn decrement<K: Ord + std::borrow::Borrow<str>>(counts: &mut BTreeMap<K, usize>, key: &str) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl PodInfo {
    pub(crate) fn new(pod: Pod) -> Self {
        let (amount, amount_for_scoring) = (demand(&pod), demand_for_scoring(&pod));
        Self { pod, amount, amount_for_scoring }
    }
}

impl NodeUsage {
    pub(crate) fn add(&mut self, pod_info: &PodInfo) {
        self.requested.add(&pod_info.amount);
        self.requested_for_scoring.add(&pod_info.amount_for_scoring);
        self.ports.extend(pod_info.pod.spec.host_ports().cloned());
    }

    pub(crate) fn subtract(&mut self, pod_info: &PodInfo) {
        self.requested.subtract(&pod_info.amount);
        self.requested_for_scoring.subtract(&pod_info.amount_for_scoring);
        for port in pod_info.pod.spec.host_ports() {
            if let Some(at) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(at);
            }
        }
    }
}

/// Whether a pod is terminating because the scheduler preempted it.
pub(crate) fn is_being_preempted(pod: &Pod) -> bool {
    let is_victim = |pod: &PodView| {
        pod.status.conditions.iter().any(|condition| {
            condition.condition_type == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason == "PreemptionByScheduler"
        })
    };
    pod.meta().is_being_deleted() && is_victim(pod)
}
