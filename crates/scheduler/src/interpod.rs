//! Which pods want each other near or far. Pure.
//!
//! Rules work both ways: those of the pod about the pods that are there, and those of the pods that are there
//! about the pod.

use std::collections::BTreeMap;

use crate::filter::{Check, Obstacle};
use crate::ledger::{Ledger, NodeInfo};
use crate::surroundings::Surroundings;
use crate::view::{Pod, PodAffinityTerm, WeightedTerm};

/// How much a required rule of a pod that is there counts for one that would fulfil it, as v1.34 has it.
const HARD_WEIGHT: i64 = 1;

/// How often a rule is met in a domain: the value of a label.
type Counts<'a> = BTreeMap<(&'a str, Box<str>), i64>;

/// What the required rules say of every domain.
#[derive(Clone)]
pub(crate) struct PodRules<'a> {
    pod: &'a Pod,
    surroundings: &'a Surroundings,
    /// Pods whose rules keep the pod away, by the domain that they keep it out of.
    repelled: BTreeMap<(Box<str>, Box<str>), i64>,
    /// Pods that fulfil all affinity terms of the pod.
    near: Counts<'a>,
    /// Pods that meet an anti-affinity term of the pod.
    far: Counts<'a>,
}

impl<'a> PodRules<'a> {
    /// The rules that concern a pod; nothing, if there are none.
    pub(crate) fn of(pod: &'a Pod, ledger: &Ledger, surroundings: &'a Surroundings) -> Option<Self> {
        let mut rules =
            Self { pod, surroundings, repelled: BTreeMap::new(), near: Counts::new(), far: Counts::new() };
        let has_own = !rules.wants_near().is_empty() || !rules.wants_far().is_empty();
        if has_own {
            for node in ledger.nodes() {
                node.pods.values().for_each(|held| rules.count(&held.pod, node, 1));
            }
        } else {
            for node in ledger.affine_nodes() {
                node.pods.values().for_each(|held| rules.count_repelled(&held.pod, node, 1));
            }
        }
        (has_own || !rules.repelled.is_empty()).then_some(rules)
    }

    fn wants_near(&self) -> &'a [PodAffinityTerm] {
        &self.pod.spec.affinity.pod_affinity.required
    }

    fn wants_far(&self) -> &'a [PodAffinityTerm] {
        &self.pod.spec.affinity.pod_anti_affinity.required
    }

    /// Another pod has come to, or left, a node.
    pub(crate) fn count(&mut self, other: &Pod, node: &NodeInfo, by: i64) {
        self.count_repelled(other, node, by);
        let (near, far) = (self.wants_near(), self.wants_far());
        if fulfils_all(near, self.pod, other, self.surroundings) {
            near.iter().for_each(|term| add(&mut self.near, term, node, by));
        }
        for term in far.iter().filter(|term| term.means(self.pod, other, self.surroundings)) {
            add(&mut self.far, term, node, by);
        }
    }

    fn count_repelled(&mut self, other: &Pod, node: &NodeInfo, by: i64) {
        for term in &other.spec.affinity.pod_anti_affinity.required {
            if let Some(value) = node.labels.get(&term.topology_key)
                && term.means(other, self.pod, self.surroundings)
            {
                *self.repelled.entry((term.topology_key.clone(), value.into())).or_default() += by;
            }
        }
    }

    pub(crate) fn obstacle(&self, node: &NodeInfo) -> Option<Obstacle> {
        if !self.has_all_near(node) {
            return Some(Obstacle::firm(Check::PodAffinity, "node(s) didn't match pod affinity rules"));
        }
        if self.has_any_far(node) {
            let reason = "node(s) didn't match pod anti-affinity rules";
            return Some(Obstacle::resolvable(Check::PodAffinity, reason));
        }
        if self.is_repelled(node) {
            let reason = "node(s) didn't satisfy existing pods anti-affinity rules";
            return Some(Obstacle::resolvable(Check::PodAffinity, reason));
        }
        None
    }

    /// The first of pods that want each other near has nobody to be near to: it may go where all the labels
    /// are.
    fn has_all_near(&self, node: &NodeInfo) -> bool {
        let mut met = true;
        for term in self.wants_near() {
            let Some(value) = node.labels.get(&term.topology_key) else { return false };
            met &= count_in(&self.near, &term.topology_key, value) > 0;
        }
        let first = || {
            self.near.values().all(|count| *count <= 0)
                && fulfils_all(self.wants_near(), self.pod, self.pod, self.surroundings)
        };
        met || first()
    }

    fn has_any_far(&self, node: &NodeInfo) -> bool {
        self.wants_far().iter().any(|term| {
            let value = node.labels.get(&term.topology_key);
            value.is_some_and(|value| count_in(&self.far, &term.topology_key, value) > 0)
        })
    }

    fn is_repelled(&self, node: &NodeInfo) -> bool {
        let of_node = |key: &str, value: &str| node.labels.get(key) == Some(value);
        self.repelled.iter().any(|((key, value), count)| *count > 0 && of_node(key, value))
    }
}

fn add<'a>(counts: &mut Counts<'a>, term: &'a PodAffinityTerm, node: &NodeInfo, by: i64) {
    if let Some(value) = node.labels.get(&term.topology_key) {
        *counts.entry((&term.topology_key, value.into())).or_default() += by;
    }
}

fn count_in(counts: &Counts<'_>, key: &str, value: &str) -> i64 {
    counts.get(&(key, value.into())).copied().unwrap_or(0)
}

fn fulfils_all(terms: &[PodAffinityTerm], of: &Pod, other: &Pod, surroundings: &Surroundings) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.means(of, other, surroundings))
}

impl PodAffinityTerm {
    /// Whether a rule of one pod is about another.
    pub(crate) fn means(&self, of: &Pod, other: &Pod, surroundings: &Surroundings) -> bool {
        let selected = |selector: &setpoint::LabelSelector| selector.matches(&other.meta().labels);
        self.label_selector.as_ref().is_some_and(selected) && self.covers(of, other, surroundings)
    }

    /// Without a word about namespaces only the rule's own counts.
    fn covers(&self, of: &Pod, other: &Pod, surroundings: &Surroundings) -> bool {
        let namespace = other.meta().namespace.as_deref().unwrap_or("");
        let listed = self.namespaces.iter().any(|name| **name == *namespace);
        match &self.namespace_selector {
            None if self.namespaces.is_empty() => of.meta().namespace == other.meta().namespace,
            None => listed,
            Some(selector) => listed || selector.matches(&surroundings.labels_of(namespace)),
        }
    }
}

/// What the preferences of pods for each other make of the candidates; nothing, if there are none.
pub(crate) fn scores(
    pod: &Pod,
    candidates: &[&NodeInfo],
    ledger: &Ledger,
    surroundings: &Surroundings,
) -> Option<Vec<i64>> {
    let (near, far) =
        (&pod.spec.affinity.pod_affinity.preferred, &pod.spec.affinity.pod_anti_affinity.preferred);
    let mut weights = Weights { by_domain: BTreeMap::new(), surroundings };
    let has_own = !near.is_empty() || !far.is_empty();
    let all = has_own.then(|| ledger.nodes()).into_iter().flatten();
    let others = (!has_own).then(|| ledger.affine_nodes()).into_iter().flatten();
    for node in all.chain(others) {
        for held in node.pods.values() {
            let there = &held.pod.spec.affinity;
            weights.add_all(near, pod, &held.pod, node, 1);
            weights.add_all(far, pod, &held.pod, node, -1);
            for term in &there.pod_affinity.required {
                weights.add(term, HARD_WEIGHT, &held.pod, pod, node);
            }
            weights.add_all(&there.pod_affinity.preferred, &held.pod, pod, node, 1);
            weights.add_all(&there.pod_anti_affinity.preferred, &held.pod, pod, node, -1);
        }
    }
    (!weights.by_domain.is_empty())
        .then(|| between_extremes(candidates.iter().map(|node| weights.of(node)).collect()))
}

/// What being in each domain is worth.
struct Weights<'a> {
    by_domain: BTreeMap<(Box<str>, Box<str>), i64>,
    surroundings: &'a Surroundings,
}

impl Weights<'_> {
    fn add_all(&mut self, terms: &[WeightedTerm], of: &Pod, about: &Pod, node: &NodeInfo, sign: i64) {
        for term in terms {
            self.add(&term.pod_affinity_term, sign * term.weight, of, about, node);
        }
    }

    fn add(&mut self, term: &PodAffinityTerm, weight: i64, of: &Pod, about: &Pod, node: &NodeInfo) {
        if let Some(value) = node.labels.get(&term.topology_key)
            && term.means(of, about, self.surroundings)
        {
            *self.by_domain.entry((term.topology_key.clone(), value.into())).or_default() += weight;
        }
    }

    fn of(&self, node: &NodeInfo) -> i64 {
        let here = self.by_domain.iter().filter(|((key, value), _)| node.labels.get(key) == Some(value));
        here.map(|(_, weight)| weight).sum()
    }
}

/// The least becomes 0, the most 100.
fn between_extremes(values: Vec<i64>) -> Vec<i64> {
    let (least, most) =
        (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
    // As v1.34 computes it: 29 of 100 are 28.
    let scaled = |value: i64| match most - least {
        0 => 0,
        all => (100.0 * ((value - least) as f64 / all as f64)) as i64,
    };
    values.into_iter().map(scaled).collect()
}
