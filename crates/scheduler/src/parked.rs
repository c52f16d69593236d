//! Unschedulable pods, parked until a change could help them.
//!
//! A parked pod remembers which checks rejected it and is only woken by a change that affects them: free resources for
//! a pod that lacked resources, a removed taint for a pod that did not tolerate it. A woken pod first waits out the
//! rest of its backoff.

use std::collections::BTreeMap;
use std::time::Duration;

use setpoint::backoff::Backoff;
use setpoint::{Instant, Key, Object};
use setpoint_placement::{Amount, untolerated};
use setpoint_volume::claim_keys;

use crate::demand::demand;
use crate::devices;
use crate::filter::{Check, Checks, REPELLING, may_be_on, shortage, tolerates_cordon};
use crate::ledger::NodeInfo;
use crate::listers::Listers;
use crate::view::{NodeView, Pod, PodView};

/// Failed attempts are retried after 1 s, doubling to 10 s, as in v1.34.
pub(crate) const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10));

/// The parked pods. Bounded by the number of pending pods.
#[derive(Default)]
pub(crate) struct Parked {
    pods: BTreeMap<Key, Entry>,
    /// The union of all parked pods' blocking checks.
    blocked: Checks,
    /// Failed attempts of each unscheduled pod, by key.
    tries: BTreeMap<Key, u32>,
}

/// A parked pod. It is kept encoded: it is decoded when a change could help it, and most changes cannot.
struct Entry {
    pod: Object,
    priority: i32,
    blocked: Checks,
    since: Instant,
}

/// A pod, and the checks that rejected it.
struct Blocked<'a> {
    pod: &'a Pod,
    blocked: Checks,
}

/// A change that could make a pod schedulable.
pub(crate) enum Change<'a> {
    Node {
        node: &'a NodeInfo,
        what: NodeChange,
    },
    NodeDeleted,
    PodRemoved(&'a Pod),
    PodAdded(&'a Pod),
    /// A bound pod's labels changed; this is its previous version.
    PodRelabelled(&'a Pod),
    /// A bound pod was resized. `freed` is the difference: negative for resources it now uses more of.
    PodResized {
        freed: &'a Amount,
    },
    Claim(&'a Key),
    /// A volume, a storage class, or a driver's capacity or limits.
    Storage,
    /// A resource claim.
    DeviceClaim {
        claim: &'a Key,
        /// Its devices were deallocated.
        freed: bool,
        /// It is new, or its state changed.
        changed: bool,
    },
    /// A device class or resource slice.
    Devices,
}

/// The changes of a node.
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
        let (pod, priority) = (pod.object().clone(), pod.spec.priority);
        self.pods.insert(pod.key().clone(), Entry { pod, priority, blocked, since: now });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Removes a pod because it will be tried for another reason.
    pub(crate) fn unpark(&mut self, key: &Key) {
        self.pods.remove(key);
        self.forget_blocks();
    }

    /// Replaces the stored pod after a change that cannot make it schedulable.
    pub(crate) fn refresh(&mut self, pod: &Object) {
        if let Some(entry) = self.pods.get_mut(pod.key()) {
            entry.pod = pod.clone();
        }
    }

    /// Forgets a pod that is scheduled or deleted.
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

    /// Whether volumes block any parked pod.
    pub(crate) fn waits_for_volumes(&self) -> bool {
        self.blocked.contains(Check::Volumes) || self.blocked.contains(Check::VolumeUse)
    }

    /// Whether devices block any parked pod.
    pub(crate) fn waits_for_devices(&self) -> bool {
        self.blocked.contains(Check::Devices)
    }

    /// Whether other pods (spread, affinity) block any parked pod.
    pub(crate) fn waits_for_other_pods(&self) -> bool {
        self.blocked.contains(Check::Spread) || self.blocked.contains(Check::PodAffinity)
    }

    /// Removes the pods that a change could help and returns each with its remaining backoff and its priority.
    pub(crate) fn woken_by(
        &mut self,
        change: &Change<'_>,
        listers: &Listers,
        now: Instant,
    ) -> Vec<(Key, i32, Duration)> {
        let helped = self.pods.iter().filter(|(_, entry)| entry.is_helped_by(change, listers));
        let woken: Vec<(Key, i32, Duration)> = helped
            .map(|(key, entry)| {
                let delay = BACKOFF.delay(self.tries.get(key).copied().unwrap_or(1).saturating_sub(1));
                let left = delay.saturating_sub(now.saturating_duration_since(entry.since));
                (key.clone(), entry.priority, left)
            })
            .collect();
        for (key, ..) in &woken {
            self.pods.remove(key);
        }
        self.forget_blocks();
        woken
    }
}

impl Change<'_> {
    /// The checks whose result the change may affect.
    fn concerns(&self) -> &'static [Check] {
        match self {
            Self::Node { .. } => &Check::ALL,
            Self::NodeDeleted => &[Check::Spread],
            Self::PodRemoved(_) => {
                &[Check::Resources, Check::Ports, Check::VolumeUse, Check::Spread, Check::PodAffinity]
            }
            Self::PodAdded(_) | Self::PodRelabelled(_) => &[Check::Spread, Check::PodAffinity],
            Self::PodResized { .. } => &[Check::Resources],
            Self::Claim(_) | Self::Storage => &[Check::Volumes, Check::VolumeUse],
            Self::DeviceClaim { .. } | Self::Devices => &[Check::Devices],
        }
    }
}

impl Entry {
    fn is_helped_by(&self, change: &Change<'_>, listers: &Listers) -> bool {
        if !change.concerns().iter().any(|check| self.blocked.contains(*check)) {
            return false;
        }
        // Wake a pod that cannot be decoded: its next attempt reports the error.
        Pod::new(self.pod.clone())
            .map_or(true, |pod| Blocked { pod: &pod, blocked: self.blocked }.is_helped_by(change, listers))
    }
}

impl Blocked<'_> {
    fn is_helped_by(&self, change: &Change<'_>, listers: &Listers) -> bool {
        match change {
            Change::Node { node, what } => self.is_helped_by_node(node, *what),
            Change::NodeDeleted => self.blocked.contains(Check::Spread),
            Change::PodRemoved(gone) => {
                self.blocked.contains(Check::Resources)
                    || self.blocked.contains(Check::Ports) && self.wants_port_of(gone)
                    || self.blocked.contains(Check::VolumeUse)
                    || self.is_freed_by(gone, listers)
            }
            Change::PodRelabelled(before) => self.is_freed_by(before, listers),
            Change::PodResized { freed } => {
                self.blocked.contains(Check::Resources) && freed.has_any_of(&demand(self.pod))
            }
            Change::Claim(claim) => self.is_blocked_by_volumes() && self.uses(claim),
            Change::Storage => self.is_blocked_by_volumes(),
            Change::DeviceClaim { claim, freed, changed } => {
                self.blocked.contains(Check::Devices)
                    && (*freed || *changed && devices::uses(self.pod, claim))
            }
            Change::Devices => self.blocked.contains(Check::Devices),
            Change::PodAdded(there) => {
                let affinity = &self.pod.spec.affinity.pod_affinity.required;
                self.is_spread_with(there)
                    || self.blocked.contains(Check::PodAffinity)
                        && affinity.iter().any(|term| term.matches_pod(self.pod, there, listers))
            }
        }
    }

    fn is_helped_by_node(&self, node: &NodeInfo, what: NodeChange) -> bool {
        let spec = &self.pod.spec;
        let fits_empty = || shortage(&demand(self.pod), &node.allocatable, &Amount::default()).is_none();
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
            Check::Spread => what.labels || what.taints && has_keys(),
            Check::PodAffinity => what.labels,
            Check::VolumeUse => what.added,
            Check::Volumes => what.labels,
            Check::Devices => what.labels || what.resources,
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

    /// Whether removing a pod, or changing its labels, could help this one.
    fn is_freed_by(&self, other: &Pod, listers: &Listers) -> bool {
        self.is_spread_with(other)
            || self.blocked.contains(Check::PodAffinity) && self.had_rule_with(other, listers)
    }

    fn had_rule_with(&self, gone: &Pod, listers: &Listers) -> bool {
        let ours = &self.pod.spec.affinity.pod_anti_affinity.required;
        let theirs = &gone.spec.affinity.pod_anti_affinity.required;
        ours.iter().any(|term| term.matches_pod(self.pod, gone, listers))
            || theirs.iter().any(|term| term.matches_pod(gone, self.pod, listers))
    }
}

/// Whether an update of a pending pod can be ignored, judged without decoding it: same generation, same labels, and a
/// pending status without node, nomination or claim statuses.
pub(crate) fn is_idle(old: &Object, new: &Object) -> bool {
    let (before, after) = (old.meta(), new.meta());
    let only_waits = |pod: &Object| {
        let decides = ["\"nodeName\"", "\"nominatedNodeName\"", "\"resourceClaimStatuses\""];
        pod.contains_text("\"phase\":\"Pending\"") && !decides.iter().any(|field| pod.contains_text(field))
    };
    after.generation > 0
        && after.generation == before.generation
        && after.uid == before.uid
        && after.labels == before.labels
        && after.deletion_timestamp == before.deletion_timestamp
        && only_waits(old)
        && only_waits(new)
}

/// Whether an update of a pending pod could make it schedulable. In its status, only the resource claim statuses
/// matter.
pub(crate) fn asks_differently(old: &PodView, new: &PodView, labels_changed: bool) -> bool {
    labels_changed
        || old.spec != new.spec
        || old.status.resource_claim_statuses != new.status.resource_claim_statuses
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Clock;

    use super::*;
    use crate::ledger::Ledger;

    fn object(value: Value) -> Object {
        Object::from_json(value.to_string().into()).expect("an object")
    }

    fn pod(name: &str, labels: Value, spec: Value) -> Pod {
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": labels});
        Pod::new(object(json!({"metadata": metadata, "spec": spec}))).expect("a pod")
    }

    fn only(check: Check) -> Checks {
        let mut checks = Checks::default();
        checks.insert(check);
        checks
    }

    fn nothing_else() -> Listers {
        Listers::from_objects(vec![], vec![], vec![])
    }

    /// Parks a pod that one check rejects on all nodes.
    fn parked(spec: Value, check: Check, clock: &Clock) -> Parked {
        let mut parked = Parked::default();
        parked.park(&pod("waits", json!({"app": "w"}), spec), only(check), clock.instant());
        parked
    }

    fn clock() -> Clock {
        Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"))
    }

    const NOTHING: NodeChange =
        NodeChange { added: false, labels: false, taints: false, cordon: false, resources: false };

    #[tokio::test(start_paused = true)]
    async fn a_node_change_wakes_the_pods_that_it_could_help() {
        let check = |check: Check, spec: Value, node: Value, what: NodeChange, expected: bool| {
            let (clock, mut ledger) = (clock(), Ledger::default());
            let node = object(node);
            ledger.put_node(&node, node.view().expect("a node"));
            let change = Change::Node { node: ledger.node("n").expect("it is there"), what };
            let woken = parked(spec, check, &clock).woken_by(&change, &nothing_else(), clock.instant());
            assert_eq!(!woken.is_empty(), expected, "{check:?} {what:?}");
        };
        let node = || {
            json!({"metadata": {"name": "n", "labels": {"zone": "a"}},
                   "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
                   "status": {"allocatable": {"cpu": "2", "pods": "10"}}})
        };
        let cpu = |cpu: &str| json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]});
        let resources = NodeChange { resources: true, ..NOTHING };
        let (labels, taints) =
            (NodeChange { labels: true, ..NOTHING }, NodeChange { taints: true, ..NOTHING });
        check(Check::Resources, cpu("1"), node(), resources, true);
        check(Check::Resources, cpu("3"), node(), resources, false);
        check(Check::Resources, cpu("1"), node(), labels, false);
        check(Check::NodeAffinity, json!({"nodeSelector": {"zone": "a"}}), node(), labels, true);
        check(Check::NodeAffinity, json!({"nodeSelector": {"zone": "b"}}), node(), labels, false);
        check(Check::Taints, json!({}), node(), taints, false);
        check(Check::Taints, json!({"tolerations": [{"operator": "Exists"}]}), node(), taints, true);
        check(Check::Ports, json!({}), node(), labels, false);
        check(Check::Ports, json!({}), node(), NodeChange::ADDED, true);
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_or_added_pod_wakes_the_pods_that_it_could_help() {
        let check = |check: Check, spec: Value, other: Value, gone: bool, expected: bool| {
            let clock = clock();
            let other = pod("other", json!({"app": "db"}), other);
            let change = if gone { Change::PodRemoved(&other) } else { Change::PodAdded(&other) };
            let woken = parked(spec, check, &clock).woken_by(&change, &nothing_else(), clock.instant());
            assert_eq!(!woken.is_empty(), expected, "{check:?} gone: {gone}");
        };
        let port = |port: u16| json!({"containers": [{"ports": [{"hostPort": port}]}]});
        let rule = |kind: &str| {
            let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"});
            json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
        };
        check(Check::Resources, json!({}), json!({}), true, true);
        check(Check::Resources, json!({}), json!({}), false, false);
        check(Check::Ports, port(80), port(80), true, true);
        check(Check::Ports, port(80), port(81), true, false);
        check(Check::PodAffinity, rule("podAffinity"), json!({}), false, true);
        check(Check::PodAffinity, rule("podAntiAffinity"), json!({}), true, true);
        check(Check::PodAffinity, rule("podAntiAffinity"), json!({}), false, false);
        check(Check::Taints, json!({}), json!({}), true, false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_loses_labels_wakes_the_pods_that_it_could_help() {
        let check = |kind: &str, labels: Value, expected: bool| {
            let clock = clock();
            let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"});
            let spec =
                json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
            let before = pod("other", labels.clone(), json!({}));
            let woken = parked(spec, Check::PodAffinity, &clock).woken_by(
                &Change::PodRelabelled(&before),
                &nothing_else(),
                clock.instant(),
            );
            assert_eq!(!woken.is_empty(), expected, "{kind} {labels}");
        };
        check("podAntiAffinity", json!({"app": "db"}), true);
        check("podAntiAffinity", json!({"app": "web"}), false);
        check("podAffinity", json!({"app": "db"}), false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_shrinks_wakes_the_pods_that_fit_now() {
        let check = |before: &str, after: &str, expected: bool| {
            let (clock, mut ledger) = (clock(), Ledger::default());
            let there = |memory: &str| {
                let requests = json!({"cpu": "1", "memory": memory});
                let spec = json!({"nodeName": "n", "containers": [{"resources": {"requests": requests}}]});
                pod("there", json!({}), spec)
            };
            ledger.put_pod(&there(before));
            let freed = ledger.put_pod(&there(after)).unwrap_or_default();
            let wants = json!({"containers": [{"resources": {"requests": {"memory": "1Gi"}}}]});
            let mut parked = parked(wants, Check::Resources, &clock);
            let woken =
                parked.woken_by(&Change::PodResized { freed: &freed }, &nothing_else(), clock.instant());
            assert_eq!(!woken.is_empty(), expected, "{before} to {after}");
        };
        check("2Gi", "1Gi", true);
        check("1Gi", "1Gi", false);
        check("1Gi", "2Gi", false);
    }

    #[test]
    fn a_scheduling_condition_does_not_wake_its_own_pod() {
        let pod = |generation: i64, labels: Value, spec: Value, status: Value| {
            let metadata = json!({"name": "p", "uid": "p", "generation": generation, "labels": labels});
            object(json!({"metadata": metadata, "spec": spec, "status": status}))
        };
        let pending = || json!({"phase": "Pending"});
        let before = pod(1, json!({}), json!({}), pending());
        let check =
            |after: Object, expected: bool| assert_eq!(is_idle(&before, &after), expected, "{after:?}");
        check(pod(1, json!({}), json!({}), json!({"phase": "Pending", "conditions": [{}]})), true);
        check(pod(2, json!({}), json!({}), pending()), false);
        check(pod(1, json!({"a": "b"}), json!({}), pending()), false);
        check(pod(1, json!({}), json!({"nodeName": "n"}), pending()), false);
        check(pod(1, json!({}), json!({}), json!({"phase": "Pending", "nominatedNodeName": "n"})), false);
        check(pod(1, json!({}), json!({}), json!({"phase": "Failed"})), false);
        let old = pod(0, json!({}), json!({}), pending());
        assert!(!is_idle(&old, &old.clone()), "no generation says nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_woken_pod_waits_for_the_backoff_of_its_last_attempt() {
        let clock = clock();
        let other = pod("other", json!({}), json!({}));
        let mut parked = parked(json!({}), Check::Resources, &clock);
        let mut left = async |seconds: u64| {
            clock.sleep(Duration::from_secs(seconds)).await;
            let woken = parked.woken_by(&Change::PodRemoved(&other), &nothing_else(), clock.instant());
            parked.park(&pod("waits", json!({}), json!({})), only(Check::Resources), clock.instant());
            woken[0].2
        };
        assert_eq!(left(0).await, Duration::from_secs(1));
        assert_eq!(left(0).await, Duration::from_secs(2));
        assert_eq!(left(3).await, Duration::from_secs(1));
        assert_eq!(left(60).await, Duration::ZERO);
        assert_eq!(left(0).await, Duration::from_secs(10));
    }
}
