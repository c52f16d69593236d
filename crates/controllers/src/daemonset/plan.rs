//! Plans which nodes get a pod and which pods to delete. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use setpoint::{Cached, EventType};

use super::placement::{Placement, Verdict};
use super::view::{DaemonSet, Node, PlacementSpec, target_node};
use crate::workload::history::REVISION_LABEL;
use crate::workload::pod::{Phase, Pod};

const GENERATION_LABEL: &str = "pod-template-generation";

/// The input of a plan, except the time.
pub(super) struct Observed<'a> {
    pub(super) set: &'a Cached<DaemonSet>,
    /// The revision hash that current pods are labelled with.
    pub(super) hash: &'a str,
    /// Every node, and whether it should run a pod.
    pub(super) nodes: BTreeMap<Box<str>, Verdict>,
    /// Pods by their node or target node. Oldest first, pods already on the node before the others.
    pub(super) pods: BTreeMap<Box<str>, Vec<Cached<Pod>>>,
}

/// The changes to make.
#[derive(Default)]
pub(super) struct Plan {
    /// Nodes that need a pod.
    pub(super) create: Vec<Box<str>>,
    pub(super) delete: Vec<Cached<Pod>>,
    /// Nodes with a failed pod.
    pub(super) failed: Vec<Box<str>>,
    pub(super) events: Vec<(EventType, &'static str, String)>,
    /// When the next failed pod may be deleted.
    pub(super) wait: Option<Duration>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

impl<'a> Observed<'a> {
    pub(super) fn new(
        set: &'a Cached<DaemonSet>,
        hash: &'a str,
        nodes: &[Cached<Node>],
        pods: &[Cached<Pod>],
    ) -> Self {
        let placement = Placement::of(PlacementSpec::of(&set.spec.template));
        let verdict = |node: &Cached<Node>| ((*node.meta().name).into(), placement.verdict(node));
        let mut by_node: BTreeMap<Box<str>, Vec<Cached<Pod>>> = BTreeMap::new();
        for pod in pods {
            // A finished pod that is being deleted is as good as gone.
            let gone = pod.phase.has_ended() && pod.meta().is_being_deleted();
            if let Some(node) = target_node(pod).filter(|_| !gone) {
                by_node.entry(node).or_default().push(pod.clone());
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| {
                (pod.node.is_empty(), pod.meta().creation_timestamp, pod.meta().name.clone())
            });
        }
        Self { set, hash, nodes: nodes.iter().map(verdict).collect(), pods: by_node }
    }

    pub(super) fn verdict(&self, node: &str) -> Verdict {
        self.nodes.get(node).copied().unwrap_or(Verdict::Not)
    }

    pub(super) fn on(&self, node: &str) -> &[Cached<Pod>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of nodes that should run a pod.
    pub(super) fn desired(&self) -> usize {
        self.nodes.values().filter(|verdict| **verdict == Verdict::Run).count()
    }

    pub(super) fn is_updated(&self, pod: &Cached<Pod>) -> bool {
        let labels = &pod.meta().labels;
        let by_hash = !self.hash.is_empty() && labels.get(REVISION_LABEL) == Some(self.hash);
        let generation = self.set.template_generation().map(|generation| generation.to_string());
        by_hash || (generation.is_some() && labels.get(GENERATION_LABEL) == generation.as_deref())
    }

    pub(super) fn is_available(&self, pod: &Cached<Pod>, now: Timestamp) -> bool {
        pod.is_available(self.set.spec.min_ready(), now)
    }
}

/// Plans one pod for every node that should run one, and none for others. `held_back` returns how long the failed pod
/// on a node must be kept.
pub(super) fn manage(
    observed: &Observed<'_>,
    held_back: impl Fn(&str) -> Option<Duration>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    for (node, verdict) in &observed.nodes {
        let pods = observed.on(node);
        match verdict {
            Verdict::Run if pods.is_empty() => plan.create.push(node.clone()),
            Verdict::Run | Verdict::Keep => plan.keep(observed, node, *verdict, &held_back, now),
            Verdict::Not => plan.delete.extend(pods.iter().filter(|pod| is_staying(pod)).cloned()),
        }
    }
    plan.delete.extend(targeting_deleted_nodes(observed));
    plan
}

impl Plan {
    fn keep(
        &mut self,
        observed: &Observed<'_>,
        node: &str,
        verdict: Verdict,
        held_back: impl Fn(&str) -> Option<Duration>,
        now: Timestamp,
    ) {
        let mut running = Vec::new();
        for pod in observed.on(node).iter().filter(|pod| is_staying(pod)) {
            match pod.phase {
                Phase::Failed => match held_back(node) {
                    Some(wait) => self.wait = self.wait.into_iter().chain([wait]).min(),
                    None => self.remove_failed(node, pod),
                },
                Phase::Succeeded => self.remove_succeeded(node, pod),
                _ => running.push(pod),
            }
        }
        if !observed.set.spec.allows_surge() {
            self.delete.extend(running.into_iter().skip(1).cloned());
        } else if running.is_empty() && verdict == Verdict::Run {
            self.create.push(node.into());
        } else {
            self.keep_surge(observed, &running, now);
        }
    }

    /// Allows two pods on the node during a surge: one of the newest revision, and the one it replaces.
    fn keep_surge(&mut self, observed: &Observed<'_>, running: &[&Cached<Pod>], now: Timestamp) {
        if running.len() <= 1 {
            return;
        }
        let is_new = |pod: &Cached<Pod>| pod.meta().labels.get(REVISION_LABEL) == Some(observed.hash);
        let (mut new, mut old) = (None, None);
        for pod in running {
            let place = if is_new(pod) { &mut new } else { &mut old };
            match place {
                None => *place = Some(*pod),
                Some(_) => self.delete.push((*pod).clone()),
            }
        }
        if let (Some(new), Some(old)) = (new, old)
            && (!old.is_ready() || observed.is_available(new, now))
        {
            self.delete.push(old.clone());
        }
    }

    fn remove_failed(&mut self, node: &str, pod: &Cached<Pod>) {
        let message = format!("Found failed daemon pod {} on node {node}, will try to kill it", pod.key());
        self.events.push((EventType::Warning, "FailedDaemonPod", message));
        self.failed.push(node.into());
        self.delete.push(pod.clone());
    }

    fn remove_succeeded(&mut self, node: &str, pod: &Cached<Pod>) {
        let message =
            format!("Found succeeded daemon pod {} on node {node}, will try to delete it", pod.key());
        self.events.push((EventType::Normal, "SucceededDaemonPod", message));
        self.delete.push(pod.clone());
    }
}

fn is_staying(pod: &Cached<Pod>) -> bool {
    !pod.meta().is_being_deleted()
}

/// Lists unscheduled pods that target a deleted node.
fn targeting_deleted_nodes<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = Cached<Pod>> + 'a {
    let gone = observed.pods.iter().filter(|(node, _)| !observed.nodes.contains_key(*node));
    gone.flat_map(|(_, pods)| pods).filter(|pod| pod.node.is_empty() && is_staying(pod)).cloned()
}

/// Returns the revision hashes of the pods.
pub(super) fn live_hashes(pods: &[Cached<Pod>]) -> BTreeSet<&str> {
    pods.iter().filter_map(|pod| pod.meta().labels.get(REVISION_LABEL)).collect()
}
