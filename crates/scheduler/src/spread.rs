//! Topology spread of pods over domains: zones, nodes or any node label. Pure.

use std::collections::BTreeMap;
use std::rc::Rc;

use setpoint::{LabelSelector, Labels, Metadata};
use setpoint_placement::untolerated;

use crate::filter::{Check, Obstacle, REPELLING, may_be_on};
use crate::label_index::OnNodes;
use crate::ledger::{Ledger, NodeInfo};
use crate::listers::Listers;
use crate::view::{Pod, SpreadConstraint};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The default preferences for pods of a controller or Service: spread over nodes, then zones.
const BY_DEFAULT: [(&str, i64); 2] = [(HOSTNAME, 3), (ZONE, 5)];

const SPREAD_SCORE: i64 = 100;

/// The hard constraints, with pod counts per domain.
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
    /// Returns the pod's hard constraints. `None` if there are none.
    pub(crate) fn required_by(pod: &'a Pod, ledger: &Ledger) -> Option<Self> {
        let required = constraints(pod, "DoNotSchedule");
        let counted = |constraint| Counted { constraint, by_domain: BTreeMap::new(), least: 0 };
        let mut spread = Self { pod, constraints: required.map(counted).collect() };
        if spread.constraints.is_empty() {
            return None;
        }
        let nodes: Vec<&NodeInfo> = ledger.nodes().filter(|node| spread.has_all_keys(node)).collect();
        for counted in &mut spread.constraints {
            let counts = SpreadCounts::selected_by(counted.constraint, pod, ledger);
            nodes.iter().for_each(|node| counted.count_node(pod, node, &counts));
            counted.find_least();
        }
        Some(spread)
    }

    fn has_all_keys(&self, node: &NodeInfo) -> bool {
        self.constraints.iter().all(|counted| node.labels.contains_key(&counted.constraint.topology_key))
    }

    /// Accounts for another pod that was added to or removed from a node.
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
    fn count_node(&mut self, pod: &Pod, node: &NodeInfo, counts: &SpreadCounts<'_>) {
        if self.constraint.covers(pod, node) {
            let domain = node.labels.get(&self.constraint.topology_key).unwrap_or_default();
            *self.by_domain.entry(domain.into()).or_default() += counts.on(&node.name);
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
        // With fewer domains than `minDomains`, the global minimum is zero.
        let feasible_nodes_to_find = self.by_domain.len() >= constraint.min_domains.unwrap_or(1);
        let least = if feasible_nodes_to_find { self.least } else { 0 };
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
    /// Whether the pods on a node are counted. By default only nodes that match the pod's node affinity are.
    fn covers(&self, pod: &Pod, node: &NodeInfo) -> bool {
        let affinity = self.node_affinity_policy.as_deref() == Some("Ignore") || may_be_on(&pod.spec, node);
        let heeds_taints = self.node_taints_policy.as_deref() == Some("Honor");
        affinity
            && !(heeds_taints && untolerated(&node.spec.taints, &pod.spec.tolerations, REPELLING).is_some())
    }

    /// Whether the constraint selects a pod with these labels.
    pub(crate) fn selects(&self, of: &Metadata, labels: &Labels) -> bool {
        let same = |key: &str| of.labels.get(key).is_none_or(|value| labels.get(key) == Some(value));
        self.label_selector.as_ref().is_some_and(|selector| selector.matches(labels))
            && self.match_label_keys.iter().all(|key| same(key))
    }

    /// Returns the constraint as label selectors. Empty if it selects no pods.
    fn selectors(&self, of: &Metadata) -> Vec<LabelSelector> {
        let Some(selector) = &self.label_selector else { return Vec::new() };
        let keys = self.match_label_keys.iter();
        let same = keys.filter_map(|key| Some((&**key, of.labels.get(key)?)));
        let same = LabelSelector { match_labels: same.collect(), ..LabelSelector::default() };
        [selector.clone(), same].into_iter().filter(|selector| !selector.is_empty()).collect()
    }
}

/// The counts of the pods to spread with.
enum SpreadCounts<'a> {
    /// From the label index.
    Known(Vec<&'a OnNodes>),
    /// Counted by going through all pods.
    Counted(OnNodes),
}

impl<'a> SpreadCounts<'a> {
    fn selected_by(constraint: &SpreadConstraint, pod: &Pod, ledger: &'a Ledger) -> Self {
        Self::of(&constraint.selectors(pod.meta()), pod, ledger)
    }

    /// Counts the pods in the pod's namespace that match all selectors. No selectors match no pods.
    fn of(selectors: &[LabelSelector], pod: &Pod, ledger: &'a Ledger) -> Self {
        if selectors.is_empty() {
            return Self::Known(Vec::new());
        }
        let namespace = pod.meta().namespace.as_deref().unwrap_or_default();
        let selected = |labels: &&Labels| selectors.iter().all(|selector| selector.matches(labels));
        ledger.label_index.selected(namespace, selectors).map_or_else(
            || {
                let counts = ledger
                    .nodes()
                    .map(|node| (node.name.clone(), staying(pod, node).filter(selected).count()));
                Self::Counted(counts.collect())
            },
            Self::Known,
        )
    }

    fn on(&self, node: &str) -> i64 {
        let count = |on_nodes: &OnNodes| on_nodes.get(node).copied().unwrap_or(0) as i64;
        match self {
            Self::Known(groups) => groups.iter().map(|group| count(group)).sum(),
            Self::Counted(on_nodes) => count(on_nodes),
        }
    }

    /// Lists nodes with their counts. A node may appear more than once.
    fn per_node(&self) -> impl Iterator<Item = (&str, i64)> {
        let (known, counted) = match self {
            Self::Known(groups) => (&groups[..], None),
            Self::Counted(on_nodes) => (&[][..], Some(on_nodes)),
        };
        let all = known.iter().copied().chain(counted);
        all.flat_map(|on_nodes| on_nodes.iter().map(|(node, count)| (node.as_str(), *count as i64)))
    }
}

/// Lists the labels of pods on a node that are in the pod's namespace and not terminating.
fn staying<'a>(pod: &'a Pod, node: &'a NodeInfo) -> impl Iterator<Item = &'a Labels> {
    let pods = node.pods.values().map(|pod_info| pod_info.pod.meta());
    let counts = |meta: &&Metadata| !meta.is_being_deleted() && meta.namespace == pod.meta().namespace;
    pods.filter(counts).map(|meta| &meta.labels)
}

/// A soft spread preference.
struct Preference<'a> {
    key: &'a str,
    max_skew: i64,
    /// The pod's own constraint, or `None` for a default.
    constraint: Option<&'a SpreadConstraint>,
    counts: Rc<SpreadCounts<'a>>,
}

impl Preference<'_> {
    fn covers(&self, pod: &Pod, node: &NodeInfo) -> bool {
        self.constraint.map_or_else(|| may_be_on(&pod.spec, node), |own| own.covers(pod, node))
    }
}

/// Scores candidates by spread. `None` if the pod has no other pods to spread with.
pub(crate) fn scores(
    pod: &Pod,
    candidates: &[&NodeInfo],
    ledger: &Ledger,
    listers: &Listers,
) -> Option<Vec<i64>> {
    let own = !pod.spec.topology_spread_constraints.is_empty();
    let preferences =
        if own { preferences_of(pod, ledger) } else { default_preferences(pod, ledger, listers) };
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
            for (node, there) in preference.counts.per_node() {
                let counted = |node: &&NodeInfo| counts_for(node) && preference.covers(pod, node);
                let Some(node) = ledger.node(node).filter(counted) else { continue };
                if let Some(count) = by_domain.get_mut(node.labels.get(preference.key).unwrap_or_default()) {
                    *count += there;
                }
            }
        }
        // Like v1.34, weight by the number of domains so that a constraint with few domains is not drowned by one with
        // many.
        let domains = if by_node { scored } else { by_domain.len() };
        let weight = ((domains + 2) as f64).ln();
        for (score, node) in scores.iter_mut().zip(candidates) {
            let (Some(score), Some(domain)) = (score, node.labels.get(preference.key)) else { continue };
            let count = if by_node { preference.counts.on(&node.name) } else { by_domain[domain] };
            *score += count as f64 * weight + (preference.max_skew - 1) as f64;
        }
    }
    Some(fewest_first(&scores.into_iter().map(|score| score.map(|s| s.round() as i64)).collect::<Vec<_>>()))
}

fn preferences_of<'a>(pod: &'a Pod, ledger: &'a Ledger) -> Vec<Preference<'a>> {
    let soft = constraints(pod, "ScheduleAnyway").map(|soft| Preference {
        key: &soft.topology_key,
        max_skew: soft.max_skew,
        constraint: Some(soft),
        counts: Rc::new(SpreadCounts::selected_by(soft, pod, ledger)),
    });
    soft.collect()
}

/// Builds the default preferences: pods are spread with those that match the same Services and controller.
fn default_preferences<'a>(pod: &Pod, ledger: &'a Ledger, listers: &Listers) -> Vec<Preference<'a>> {
    let selectors = listers.selectors_for(pod);
    if selectors.is_empty() {
        return Vec::new();
    }
    let counts = Rc::new(SpreadCounts::of(&selectors, pod, ledger));
    BY_DEFAULT
        .map(|(key, max_skew)| Preference { key, max_skew, constraint: None, counts: counts.clone() })
        .into()
}

/// Inverts and normalizes scores: fewer pods are better, unscored candidates are worst.
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
