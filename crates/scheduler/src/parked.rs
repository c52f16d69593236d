//! Pods that fit nowhere, until something changes that could help.
//!
//! A pod remembers what kept it off the nodes, and only a change of that wakes it: room for one that lacked
//! room, a taint gone for one that did not tolerate it. A pod that is woken waits out the rest of the back-off
//! of its last try.

use std::collections::BTreeMap;
use std::time::Duration;

use setpoint::backoff::Backoff;
use setpoint::{Instant, Key};
use setpoint_placement::untolerated;
use setpoint_volume::claim_keys;

use crate::demand::{Amount, demand};
use crate::filter::{Check, Checks, REPELLING, may_be_on, shortage, tolerates_cordon};
use crate::ledger::NodeInfo;
use crate::surroundings::Surroundings;
use crate::view::{NodeView, Pod, PodView};

/// A failed try is repeated after 1 s, doubling to 10 s, as v1.34 does.
pub(crate) const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10));

/// The parked pods. Bounded by the number of pending pods.
#[derive(Default)]
pub(crate) struct Parked {
    pods: BTreeMap<Key, Entry>,
    /// What any of them is blocked by.
    blocked: Checks,
    /// How often each pod that is not yet placed has been tried in vain, by key.
    tries: BTreeMap<Key, u32>,
}

struct Entry {
    pod: Pod,
    blocked: Checks,
    since: Instant,
}

/// Something that could make a pod fit.
pub(crate) enum Change<'a> {
    Node {
        node: &'a NodeInfo,
        what: NodeChange,
    },
    NodeGone,
    PodGone(&'a Pod),
    PodThere(&'a Pod),
    Claim(&'a Key),
    /// A volume, a class, or what a driver says.
    Storage,
}

/// What is new about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeChange {
    pub(crate) added: bool,
    pub(crate) labels: bool,
    pub(crate) taints: bool,
    pub(crate) cordon: bool,
    pub(crate) resources: bool,
}

impl NodeChange {
    pub(crate) const ADDED: Self =
        Self { added: true, labels: true, taints: true, cordon: true, resources: true };

    pub(crate) fn between(old: &NodeView, new: &NodeView, labels: bool) -> Self {
        Self {
            added: false,
            labels,
            taints: old.spec.taints != new.spec.taints,
            cordon: old.spec.unschedulable != new.spec.unschedulable,
            resources: old.status.allocatable != new.status.allocatable,
        }
    }

    pub(crate) fn is_none(self) -> bool {
        !(self.added || self.labels || self.taints || self.cordon || self.resources)
    }
}

impl Parked {
    pub(crate) fn park(&mut self, pod: &Pod, blocked: Checks, now: Instant) {
        *self.tries.entry(pod.key().clone()).or_default() += 1;
        self.blocked.merge(blocked);
        self.pods.insert(pod.key().clone(), Entry { pod: pod.clone(), blocked, since: now });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The pod gets another look for a reason of its own.
    pub(crate) fn unpark(&mut self, key: &Key) {
        self.pods.remove(key);
        self.forget_blocks();
    }

    /// The pod is placed or gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        if !self.tries.is_empty() {
            self.tries.remove(key);
        }
        if !self.pods.is_empty() {
            self.unpark(key);
        }
    }

    fn forget_blocks(&mut self) {
        if self.pods.is_empty() {
            self.blocked.clear();
        }
    }

    /// Whether volumes keep any of them off the nodes.
    pub(crate) fn minds_volumes(&self) -> bool {
        self.blocked.contains(Check::Volumes) || self.blocked.contains(Check::VolumeUse)
    }

    /// Whether the presence or absence of other pods decides for any of them.
    pub(crate) fn minds_company(&self) -> bool {
        self.blocked.contains(Check::Spread) || self.blocked.contains(Check::PodAffinity)
    }

    /// Takes out the pods that a change could help, each with what is left of its back-off and its priority.
    pub(crate) fn woken_by(
        &mut self,
        change: &Change<'_>,
        surroundings: &Surroundings,
        now: Instant,
    ) -> Vec<(Key, i32, Duration)> {
        let helped = self.pods.iter().filter(|(_, entry)| entry.is_helped_by(change, surroundings));
        let woken: Vec<(Key, i32, Duration)> = helped
            .map(|(key, entry)| {
                let delay = BACKOFF.delay(self.tries.get(key).copied().unwrap_or(1).saturating_sub(1));
                let left = delay.saturating_sub(now.saturating_duration_since(entry.since));
                (key.clone(), entry.pod.spec.priority, left)
            })
            .collect();
        for (key, ..) in &woken {
            self.pods.remove(key);
        }
        self.forget_blocks();
        woken
    }
}

impl Entry {
    fn is_helped_by(&self, change: &Change<'_>, surroundings: &Surroundings) -> bool {
        match change {
            Change::Node { node, what } => self.is_helped_by_node(node, *what),
            Change::NodeGone => self.blocked.contains(Check::Spread),
            Change::PodGone(gone) => {
                self.blocked.contains(Check::Resources)
                    || self.blocked.contains(Check::Ports) && self.wants_port_of(gone)
                    || self.blocked.contains(Check::VolumeUse)
                    || self.is_spread_with(gone)
                    || self.blocked.contains(Check::PodAffinity) && self.had_rule_with(gone, surroundings)
            }
            Change::Claim(claim) => self.is_blocked_by_volumes() && self.uses(claim),
            Change::Storage => self.is_blocked_by_volumes(),
            Change::PodThere(there) => {
                let near = &self.pod.spec.affinity.pod_affinity.required;
                self.is_spread_with(there)
                    || self.blocked.contains(Check::PodAffinity)
                        && near.iter().any(|term| term.means(&self.pod, there, surroundings))
            }
        }
    }

    fn is_helped_by_node(&self, node: &NodeInfo, what: NodeChange) -> bool {
        let spec = &self.pod.spec;
        let fits_empty = || shortage(&demand(spec), &node.allocatable, &Amount::default()).is_none();
        let has_keys = || {
            let mut constraints = spec.topology_spread_constraints.iter();
            constraints.all(|constraint| node.labels.contains_key(&constraint.topology_key))
        };
        let helps = |check: Check| match check {
            Check::Cordon => what.cordon && (!node.spec.unschedulable || tolerates_cordon(spec)),
            Check::Taints => {
                what.taints && untolerated(&node.spec.taints, &spec.tolerations, REPELLING).is_none()
            }
            Check::NodeAffinity => what.labels && may_be_on(spec, node),
            Check::Ports => what.added,
            Check::Resources => what.resources && fits_empty(),
            Check::Spread => (what.labels || what.taints) && has_keys(),
            Check::PodAffinity => what.labels,
            Check::VolumeUse => what.added,
            Check::Volumes => what.labels,
        };
        Check::ALL.into_iter().any(|check| self.blocked.contains(check) && helps(check))
    }

    fn is_blocked_by_volumes(&self) -> bool {
        self.blocked.contains(Check::Volumes) || self.blocked.contains(Check::VolumeUse)
    }

    fn uses(&self, claim: &Key) -> bool {
        claim_keys(self.pod.object()).any(|used| used == *claim)
    }

    fn wants_port_of(&self, gone: &Pod) -> bool {
        self.pod.spec.host_ports().any(|port| gone.spec.host_ports().any(|taken| port.clashes_with(taken)))
    }

    fn is_spread_with(&self, other: &Pod) -> bool {
        let mut constraints = self.pod.spec.topology_spread_constraints.iter();
        self.blocked.contains(Check::Spread)
            && other.meta().namespace == self.pod.meta().namespace
            && constraints.any(|constraint| constraint.selects(self.pod.meta(), &other.meta().labels))
    }

    fn had_rule_with(&self, gone: &Pod, surroundings: &Surroundings) -> bool {
        let ours = &self.pod.spec.affinity.pod_anti_affinity.required;
        let theirs = &gone.spec.affinity.pod_anti_affinity.required;
        ours.iter().any(|term| term.means(&self.pod, gone, surroundings))
            || theirs.iter().any(|term| term.means(gone, &self.pod, surroundings))
    }
}

/// Whether a change of a pending pod could make it fit: its own status cannot.
pub(crate) fn asks_differently(old: &PodView, new: &PodView, labels_changed: bool) -> bool {
    labels_changed || old.spec != new.spec
}
