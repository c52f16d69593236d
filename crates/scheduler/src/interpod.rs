//! Inter-pod affinity and anti-affinity. Pure.
//!
//! Terms work both ways: the pod's own terms apply to existing pods, and the terms of existing pods apply to the pod.

use std::collections::BTreeMap;

use crate::filter::{Check, Obstacle};
use crate::ledger::{Ledger, NodeInfo};
use crate::listers::Listers;
use crate::view::{Pod, PodAffinityTerm, WeightedTerm};

/// The weight of an existing pod's required affinity term in scoring, as in v1.34.
const HARD_WEIGHT: i64 = 1;

/// Matching pods per topology domain, i.e. per label key and value.
type Counts<'a> = BTreeMap<(&'a str, Box<str>), i64>;

/// The required terms, with matching pods per topology domain.
#[derive(Clone)]
pub(crate) struct PodRules<'a> {
    pod: &'a Pod,
    listers: &'a Listers,
    /// Existing pods whose anti-affinity rejects this pod, by domain.
    repelled: BTreeMap<(Box<str>, Box<str>), i64>,
    /// Pods that match all affinity terms of the pod.
    affinity: Counts<'a>,
    /// Pods that match an anti-affinity term of the pod.
    anti_affinity: Counts<'a>,
}

impl<'a> PodRules<'a> {
    /// Evaluates the terms that concern a pod. `None` if there are none.
    pub(crate) fn of(pod: &'a Pod, ledger: &Ledger, listers: &'a Listers) -> Option<Self> {
        let mut rules = Self {
            pod,
            listers,
            repelled: BTreeMap::new(),
            affinity: Counts::new(),
            anti_affinity: Counts::new(),
        };
        let has_own = !rules.affinity_terms().is_empty() || !rules.anti_affinity_terms().is_empty();
        if has_own {
            for node in ledger.nodes() {
                node.pods.values().for_each(|pod_info| rules.count(&pod_info.pod, node, 1));
            }
        } else {
            for node in ledger.affine_nodes() {
                node.pods.values().for_each(|pod_info| rules.count_repelled(&pod_info.pod, node, 1));
            }
        }
        (has_own || !rules.repelled.is_empty()).then_some(rules)
    }

    fn affinity_terms(&self) -> &'a [PodAffinityTerm] {
        &self.pod.spec.affinity.pod_affinity.required
    }

    fn anti_affinity_terms(&self) -> &'a [PodAffinityTerm] {
        &self.pod.spec.affinity.pod_anti_affinity.required
    }

    /// Accounts for another pod that was added to or removed from a node.
    pub(crate) fn count(&mut self, other: &Pod, node: &NodeInfo, by: i64) {
        self.count_repelled(other, node, by);
        let (affinity, anti_affinity) = (self.affinity_terms(), self.anti_affinity_terms());
        if fulfils_all(affinity, self.pod, other, self.listers) {
            affinity.iter().for_each(|term| add(&mut self.affinity, term, node, by));
        }
        for term in anti_affinity.iter().filter(|term| term.matches_pod(self.pod, other, self.listers)) {
            add(&mut self.anti_affinity, term, node, by);
        }
    }

    fn count_repelled(&mut self, other: &Pod, node: &NodeInfo, by: i64) {
        for term in &other.spec.affinity.pod_anti_affinity.required {
            if let Some(value) = node.labels.get(&term.topology_key)
                && term.matches_pod(other, self.pod, self.listers)
            {
                *self.repelled.entry((term.topology_key.clone(), value.into())).or_default() += by;
            }
        }
    }

    pub(crate) fn obstacle(&self, node: &NodeInfo) -> Option<Obstacle> {
        if !self.meets_affinity(node) {
            return Some(Obstacle::firm(Check::PodAffinity, "node(s) didn't match pod affinity rules"));
        }
        if self.violates_anti_affinity(node) {
            let reason = "node(s) didn't match pod anti-affinity rules";
            return Some(Obstacle::resolvable(Check::PodAffinity, reason));
        }
        if self.is_repelled(node) {
            let reason = "node(s) didn't satisfy existing pods anti-affinity rules";
            return Some(Obstacle::resolvable(Check::PodAffinity, reason));
        }
        None
    }

    /// Whether the node satisfies all affinity terms. The first pod of a group that matches its own terms has no pods
    /// to be near; it may go to any node that has all topology keys.
    fn meets_affinity(&self, node: &NodeInfo) -> bool {
        let mut met = true;
        for term in self.affinity_terms() {
            let Some(value) = node.labels.get(&term.topology_key) else { return false };
            met &= count_in(&self.affinity, &term.topology_key, value) > 0;
        }
        let first = || {
            self.affinity.values().all(|count| *count <= 0)
                && fulfils_all(self.affinity_terms(), self.pod, self.pod, self.listers)
        };
        met || first()
    }

    fn violates_anti_affinity(&self, node: &NodeInfo) -> bool {
        self.anti_affinity_terms().iter().any(|term| {
            let value = node.labels.get(&term.topology_key);
            value.is_some_and(|value| count_in(&self.anti_affinity, &term.topology_key, value) > 0)
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

fn fulfils_all(terms: &[PodAffinityTerm], of: &Pod, other: &Pod, listers: &Listers) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches_pod(of, other, listers))
}

impl PodAffinityTerm {
    /// Whether a term of one pod matches another pod.
    pub(crate) fn matches_pod(&self, of: &Pod, other: &Pod, listers: &Listers) -> bool {
        let selected = |selector: &setpoint::LabelSelector| selector.matches(&other.meta().labels);
        self.label_selector.as_ref().is_some_and(selected) && self.covers(of, other, listers)
    }

    /// Whether a term covers the other pod's namespace. By default only the namespace of the term's own pod.
    fn covers(&self, of: &Pod, other: &Pod, listers: &Listers) -> bool {
        let namespace = other.meta().namespace.as_deref().unwrap_or("");
        let listed = self.namespaces.iter().any(|name| **name == *namespace);
        match &self.namespace_selector {
            None if self.namespaces.is_empty() => of.meta().namespace == other.meta().namespace,
            None => listed,
            Some(selector) => listed || selector.matches(&listers.labels_of(namespace)),
        }
    }
}

/// Scores candidates by preferred affinity and anti-affinity terms. `None` if there are none.
pub(crate) fn scores(
    pod: &Pod,
    candidates: &[&NodeInfo],
    ledger: &Ledger,
    listers: &Listers,
) -> Option<Vec<i64>> {
    let (affinity, anti_affinity) =
        (&pod.spec.affinity.pod_affinity.preferred, &pod.spec.affinity.pod_anti_affinity.preferred);
    let mut weights = Weights { by_domain: BTreeMap::new(), listers };
    let has_own = !affinity.is_empty() || !anti_affinity.is_empty();
    let all = has_own.then(|| ledger.nodes()).into_iter().flatten();
    let others = (!has_own).then(|| ledger.affine_nodes()).into_iter().flatten();
    for node in all.chain(others) {
        for pod_info in node.pods.values() {
            let there = &pod_info.pod.spec.affinity;
            weights.add_all(affinity, pod, &pod_info.pod, node, 1);
            weights.add_all(anti_affinity, pod, &pod_info.pod, node, -1);
            for term in &there.pod_affinity.required {
                weights.add(term, HARD_WEIGHT, &pod_info.pod, pod, node);
            }
            weights.add_all(&there.pod_affinity.preferred, &pod_info.pod, pod, node, 1);
            weights.add_all(&there.pod_anti_affinity.preferred, &pod_info.pod, pod, node, -1);
        }
    }
    (!weights.by_domain.is_empty())
        .then(|| between_extremes(candidates.iter().map(|node| weights.of(node)).collect()))
}

/// The score of each topology domain.
struct Weights<'a> {
    by_domain: BTreeMap<(Box<str>, Box<str>), i64>,
    listers: &'a Listers,
}

impl Weights<'_> {
    fn add_all(&mut self, terms: &[WeightedTerm], of: &Pod, about: &Pod, node: &NodeInfo, sign: i64) {
        for term in terms {
            self.add(&term.pod_affinity_term, sign * term.weight, of, about, node);
        }
    }

    fn add(&mut self, term: &PodAffinityTerm, weight: i64, of: &Pod, about: &Pod, node: &NodeInfo) {
        if let Some(value) = node.labels.get(&term.topology_key)
            && term.matches_pod(of, about, self.listers)
        {
            *self.by_domain.entry((term.topology_key.clone(), value.into())).or_default() += weight;
        }
    }

    fn of(&self, node: &NodeInfo) -> i64 {
        let here = self.by_domain.iter().filter(|((key, value), _)| node.labels.get(key) == Some(value));
        here.map(|(_, weight)| weight).sum()
    }
}

/// Scales scores so that the lowest becomes 0 and the highest 100.
fn between_extremes(values: Vec<i64>) -> Vec<i64> {
    let (least, most) =
        (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
    // Truncates like v1.34: 29 of 100 becomes 28.
    let scaled = |value: i64| match most - least {
        0 => 0,
        all => (100.0 * ((value - least) as f64 / all as f64)) as i64,
    };
    values.into_iter().map(scaled).collect()
}
