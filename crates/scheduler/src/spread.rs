//! How evenly pods are spread over domains: zones, nodes, whatever a label names. Pure.

use std::collections::BTreeMap;

use setpoint::{LabelSelector, Labels, Metadata};
use setpoint_placement::untolerated;

use crate::filter::{Check, Obstacle, REPELLING, may_be_on};
use crate::ledger::{Ledger, NodeInfo, OnNodes};
use crate::surroundings::{Surroundings, has_all};
use crate::view::{Pod, SpreadConstraint};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What every pod of a controller or Service prefers, with nothing else said: spread over nodes, then zones.
const BY_DEFAULT: [(&str, i64); 2] = [(HOSTNAME, 3), (ZONE, 5)];

const SPREAD_SCORE: i64 = 100;

/// The constraints that must hold, and the pods in every domain.
#[derive(Clone)]
pub(crate) struct Spread<'a> {
    pod: &'a Pod,
    constraints: Vec<Counted<'a>>,
}

#[derive(Clone)]
struct Counted<'a> {
    constraint: &'a SpreadConstraint,
    by_domain: BTreeMap<Box<str>, i64>,
    least: i64,
}

impl<'a> Spread<'a> {
    /// The constraints of a pod that must hold; nothing, if there are none.
    pub(crate) fn required_by(pod: &'a Pod, ledger: &Ledger) -> Option<Self> {
        let required = constraints(pod, "DoNotSchedule");
        let counted = |constraint| Counted { constraint, by_domain: BTreeMap::new(), least: 0 };
        let mut spread = Self { pod, constraints: required.map(counted).collect() };
        if spread.constraints.is_empty() {
            return None;
        }
        for node in ledger.nodes().filter(|node| spread.has_all_keys(node)).collect::<Vec<_>>() {
            for counted in &mut spread.constraints {
                counted.count_node(pod, node);
            }
        }
        spread.constraints.iter_mut().for_each(Counted::find_least);
        Some(spread)
    }

    fn has_all_keys(&self, node: &NodeInfo) -> bool {
        self.constraints.iter().all(|counted| node.labels.contains_key(&counted.constraint.topology_key))
    }

    /// Another pod has come to, or left, a node.
    pub(crate) fn count(&mut self, other: &Pod, node: &NodeInfo, by: i64) {
        if other.meta().namespace != self.pod.meta().namespace || !self.has_all_keys(node) {
            return;
        }
        for counted in &mut self.constraints {
            let constraint = counted.constraint;
            if constraint.selects(self.pod.meta(), &other.meta().labels) && constraint.covers(self.pod, node)
            {
                let domain = node.labels.get(&constraint.topology_key).unwrap_or_default();
                *counted.by_domain.entry(domain.into()).or_default() += by;
                counted.find_least();
            }
        }
    }

    pub(crate) fn obstacle(&self, node: &NodeInfo) -> Option<Obstacle> {
        self.constraints.iter().find_map(|counted| counted.obstacle(self.pod, node))
    }
}

impl Counted<'_> {
    fn count_node(&mut self, pod: &Pod, node: &NodeInfo) {
        if self.constraint.covers(pod, node) {
            let domain = node.labels.get(&self.constraint.topology_key).unwrap_or_default();
            *self.by_domain.entry(domain.into()).or_default() += self.constraint.count_on(pod, node);
        }
    }

    fn find_least(&mut self) {
        self.least = self.by_domain.values().copied().min().unwrap_or(0);
    }

    fn obstacle(&self, pod: &Pod, node: &NodeInfo) -> Option<Obstacle> {
        let constraint = self.constraint;
        let Some(domain) = node.labels.get(&constraint.topology_key) else {
            let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
            return Some(Obstacle::firm(Check::Spread, reason));
        };
        // With fewer domains than asked for, those that are missing count as empty.
        let enough = self.by_domain.len() >= constraint.min_domains.unwrap_or(1);
        let least = if enough { self.least } else { 0 };
        let itself = i64::from(constraint.selects(pod.meta(), &pod.meta().labels));
        let there = self.by_domain.get(domain).copied().unwrap_or(0);
        (there + itself - least > constraint.max_skew).then(|| {
            Obstacle::resolvable(Check::Spread, "node(s) didn't match pod topology spread constraints")
        })
    }
}

fn constraints<'a>(pod: &'a Pod, action: &'static str) -> impl Iterator<Item = &'a SpreadConstraint> {
    let all = pod.spec.topology_spread_constraints.iter();
    all.filter(move |constraint| *constraint.when_unsatisfiable == *action)
}

impl SpreadConstraint {
    /// Whether the pods of a node count: those of nodes that the pod could not be on do not, unless it says so.
    fn covers(&self, pod: &Pod, node: &NodeInfo) -> bool {
        let affinity = self.node_affinity_policy.as_deref() == Some("Ignore") || may_be_on(&pod.spec, node);
        let heeds_taints = self.node_taints_policy.as_deref() == Some("Honor");
        affinity
            && !(heeds_taints && untolerated(&node.spec.taints, &pod.spec.tolerations, REPELLING).is_some())
    }

    /// Whether labels are those of a pod that is to be spread together with this one.
    pub(crate) fn selects(&self, of: &Metadata, labels: &Labels) -> bool {
        let same = |key: &str| of.labels.get(key).is_none_or(|value| labels.get(key) == Some(value));
        self.label_selector.as_ref().is_some_and(|selector| selector.matches(labels))
            && self.match_label_keys.iter().all(|key| same(key))
    }

    fn count_on(&self, pod: &Pod, node: &NodeInfo) -> i64 {
        let everything = self.label_selector.as_ref().is_some_and(LabelSelector::is_empty);
        if everything && self.match_label_keys.is_empty() {
            return 0;
        }
        staying(pod, node).filter(|labels| self.selects(pod.meta(), labels)).count() as i64
    }
}

/// The labels of the pods on a node that are of the pod's namespace and are not on their way out.
fn staying<'a>(pod: &'a Pod, node: &'a NodeInfo) -> impl Iterator<Item = &'a Labels> {
    let pods = node.pods.values().map(|held| held.pod.meta());
    let counts = |meta: &&Metadata| !meta.is_being_deleted() && meta.namespace == pod.meta().namespace;
    pods.filter(counts).map(|meta| &meta.labels)
}

/// A preference for few of certain pods in a domain.
struct Preference<'a> {
    key: &'a str,
    max_skew: i64,
    of: Kin<'a>,
}

/// The pods that one is to be spread together with.
enum Kin<'a> {
    /// Those that a constraint of its own selects.
    Selected(&'a SpreadConstraint),
    /// Those of its controller, which are counted as they come and go; nowhere yet, if there are none.
    Replicas(Option<&'a OnNodes>),
    /// Those of its Services.
    Served(Vec<Labels>),
}

impl Preference<'_> {
    fn count_on(&self, pod: &Pod, node: &NodeInfo) -> i64 {
        match &self.of {
            Kin::Selected(constraint) => constraint.count_on(pod, node),
            Kin::Replicas(on_nodes) => {
                on_nodes.and_then(|on_nodes| on_nodes.get(&node.name)).copied().unwrap_or(0) as i64
            }
            Kin::Served(selectors) => {
                let served = |labels: &&Labels| selectors.iter().all(|selector| has_all(labels, selector));
                staying(pod, node).filter(served).count() as i64
            }
        }
    }

    fn covers(&self, pod: &Pod, node: &NodeInfo) -> bool {
        match &self.of {
            Kin::Selected(constraint) => constraint.covers(pod, node),
            _ => may_be_on(&pod.spec, node),
        }
    }

    /// The nodes that may have any of these pods.
    fn nodes<'l>(&'l self, ledger: &'l Ledger) -> Box<dyn Iterator<Item = &'l NodeInfo> + 'l> {
        match &self.of {
            Kin::Replicas(on_nodes) => {
                let names = on_nodes.iter().flat_map(|on_nodes| on_nodes.keys());
                Box::new(names.filter_map(|name| ledger.node(name)))
            }
            _ => Box::new(ledger.nodes()),
        }
    }
}

/// What spreading makes of the candidates; nothing, if the pod has nobody to be spread with.
pub(crate) fn scores(
    pod: &Pod,
    candidates: &[&NodeInfo],
    ledger: &Ledger,
    surroundings: &Surroundings,
) -> Option<Vec<i64>> {
    let own = !pod.spec.topology_spread_constraints.is_empty();
    let preferences = if own { preferences_of(pod) } else { default_preferences(pod, ledger, surroundings) };
    if preferences.is_empty() {
        return None;
    }
    let counts_for = |node: &NodeInfo| {
        !own || preferences.iter().all(|preference| node.labels.contains_key(preference.key))
    };
    let mut scores: Vec<Option<f64>> =
        candidates.iter().map(|node| counts_for(node).then_some(0.0)).collect();
    let scored = scores.iter().flatten().count();
    for preference in &preferences {
        let mut by_domain: BTreeMap<&str, i64> = BTreeMap::new();
        let by_node = preference.key == HOSTNAME;
        if !by_node {
            let counted = candidates.iter().filter(|node| counts_for(node));
            by_domain.extend(counted.map(|node| (node.labels.get(preference.key).unwrap_or_default(), 0)));
            for node in
                preference.nodes(ledger).filter(|node| counts_for(node) && preference.covers(pod, node))
            {
                if let Some(count) = by_domain.get_mut(node.labels.get(preference.key).unwrap_or_default()) {
                    *count += preference.count_on(pod, node);
                }
            }
        }
        // Small numbers of domains are not to be drowned by large ones.
        let domains = if by_node { scored } else { by_domain.len() };
        let weight = ((domains + 2) as f64).ln();
        for (score, node) in scores.iter_mut().zip(candidates) {
            let (Some(score), Some(domain)) = (score, node.labels.get(preference.key)) else { continue };
            let count = if by_node { preference.count_on(pod, node) } else { by_domain[domain] };
            *score += count as f64 * weight + (preference.max_skew - 1) as f64;
        }
    }
    Some(fewest_first(&scores.into_iter().map(|score| score.map(|s| s.round() as i64)).collect::<Vec<_>>()))
}

fn preferences_of(pod: &Pod) -> Vec<Preference<'_>> {
    let soft = constraints(pod, "ScheduleAnyway");
    soft.map(|soft| Preference { key: &soft.topology_key, max_skew: soft.max_skew, of: Kin::Selected(soft) })
        .collect()
}

/// Replicas of a controller are those that it owns; of pods without one the Services decide.
fn default_preferences<'a>(
    pod: &Pod,
    ledger: &'a Ledger,
    surroundings: &Surroundings,
) -> Vec<Preference<'a>> {
    let replicated = |kind: &str| matches!(kind, "ReplicaSet" | "ReplicationController" | "StatefulSet");
    let owner = pod.meta().controller().filter(|owner| replicated(&owner.kind));
    let of = |key, max_skew, of| Preference { key, max_skew, of };
    if let Some(owner) = owner {
        let on_nodes = ledger.replicas(&owner.uid);
        return BY_DEFAULT.map(|(key, skew)| of(key, skew, Kin::Replicas(on_nodes))).into();
    }
    let served = surroundings.selectors_for(pod);
    if served.is_empty() {
        return Vec::new();
    }
    BY_DEFAULT.map(|(key, skew)| of(key, skew, Kin::Served(served.clone()))).into()
}

/// The emptier, the better; what is not scored is worst.
fn fewest_first(scores: &[Option<i64>]) -> Vec<i64> {
    let least = scores.iter().flatten().copied().min().unwrap_or(0);
    let most = scores.iter().flatten().copied().max().unwrap_or(0);
    let normal = |score: &Option<i64>| match *score {
        None => 0,
        Some(_) if most == 0 => SPREAD_SCORE,
        Some(score) => SPREAD_SCORE * (most + least - score) / most,
    };
    scores.iter().map(normal).collect()
}
