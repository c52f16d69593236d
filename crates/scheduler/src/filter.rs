//! Which nodes can take a pod. Pure.
//!
//! The checks run in v1.34's order, and the first that fails gives its reasons; only the resource check
//! gives several. What a check needs to know of the whole cluster is found out once per pod, and a check that
//! the pod gives no cause for is not made.

use std::borrow::Cow;
use std::collections::BTreeSet;

use setpoint_placement::{Amount, NO_EXECUTE, NO_SCHEDULE, Port, Taint, untolerated};

use crate::demand::demand;
use crate::devices::DeviceNeeds;
use crate::interpod::PodRules;
use crate::ledger::{Held, Ledger, NodeInfo, Room};
use crate::spread::Spread;
use crate::surroundings::Surroundings;
use crate::view::{Pod, PodSpec};
use crate::volumes::{DiskNeeds, VolumeNeeds};

/// The taints that keep pods away.
pub(crate) const REPELLING: &[&str] = &[NO_SCHEDULE, NO_EXECUTE];

/// What a node is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Cordon,
    Taints,
    NodeAffinity,
    Ports,
    Resources,
    Spread,
    PodAffinity,
    /// Volumes that others use, or too many of them.
    VolumeUse,
    /// Volumes that are elsewhere, or not there.
    Volumes,
    /// Devices that are elsewhere, taken, or not there.
    Devices,
}

impl Check {
    pub(crate) const ALL: [Self; 10] = [
        Self::Cordon,
        Self::Taints,
        Self::NodeAffinity,
        Self::Ports,
        Self::Resources,
        Self::Spread,
        Self::PodAffinity,
        Self::VolumeUse,
        Self::Volumes,
        Self::Devices,
    ];
}

/// A set of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checks(u16);

impl Checks {
    pub(crate) fn insert(&mut self, check: Check) {
        self.0 |= 1 << check as u16;
    }

    pub(crate) fn contains(self, check: Check) -> bool {
        self.0 & (1 << check as u16) != 0
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Every check there is: what blocks a pod where there is no node at all.
    pub(crate) fn all() -> Self {
        let mut all = Self::default();
        Check::ALL.into_iter().for_each(|check| all.insert(check));
        all
    }

    pub(crate) fn clear(&mut self) {
        self.0 = 0;
    }
}

/// Why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) check: Check,
    pub(crate) reasons: Vec<Cow<'static, str>>,
    pub(crate) severity: Severity,
}

/// What can be done about an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Fewer pods on the node could help.
    Resolvable,
    /// Another node has to be found.
    Firm,
    /// Something is wrong that no node can help with.
    Fatal,
}

impl Obstacle {
    pub(crate) fn firm(check: Check, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { check, reasons: vec![reason.into()], severity: Severity::Firm }
    }

    pub(crate) fn fatal(check: Check, reason: String) -> Self {
        Self { check, reasons: vec![reason.into()], severity: Severity::Fatal }
    }

    pub(crate) fn resolvable(check: Check, reason: &'static str) -> Self {
        Self { check, reasons: vec![reason.into()], severity: Severity::Resolvable }
    }

    pub(crate) fn is_resolvable(&self) -> bool {
        self.severity == Severity::Resolvable
    }
}

/// Why no node can have a pod, whatever nodes there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) check: Check,
    /// In the words of v1.34.
    pub(crate) message: String,
}

/// One pod's needs, held against the cluster as it is.
#[derive(Clone)]
pub(crate) struct Needs<'a> {
    pub(crate) pod: &'a Pod,
    demand: Amount,
    ports: Vec<&'a Port>,
    /// The only nodes that the pod's affinity names, if it names any.
    pub(crate) named: Option<BTreeSet<&'a str>>,
    spread: Option<Spread<'a>>,
    pod_rules: Option<PodRules<'a>>,
    disks: Option<DiskNeeds>,
    volumes: Option<VolumeNeeds<'a>>,
    pub(crate) devices: Option<DeviceNeeds<'a>>,
    pub(crate) refusal: Option<Refusal>,
}

impl<'a> Needs<'a> {
    pub(crate) fn of(pod: &'a Pod, ledger: &Ledger, surroundings: &'a Surroundings) -> Self {
        let required = pod.spec.affinity.node_affinity.required.as_ref();
        let named = required.and_then(|required| required.named_nodes());
        let refuse = |check: Check| move |message: String| Refusal { check, message };
        let contradicts = named.as_ref().is_some_and(BTreeSet::is_empty);
        let contradiction =
            contradicts.then(|| refuse(Check::NodeAffinity)("pod affinity terms conflict".into()));
        let volumes = VolumeNeeds::of(pod, ledger, &surroundings.volumes).map_err(refuse(Check::Volumes));
        let devices =
            DeviceNeeds::of(pod, &ledger.devices, &surroundings.devices).map_err(refuse(Check::Devices));
        // In the order in which v1.34 asks.
        let refusal = contradiction.or(volumes.as_ref().err().cloned()).or(devices.as_ref().err().cloned());
        Self {
            pod,
            demand: demand(pod),
            ports: pod.spec.host_ports().collect(),
            named,
            spread: Spread::required_by(pod, ledger),
            pod_rules: PodRules::of(pod, ledger, surroundings),
            disks: DiskNeeds::of(pod),
            volumes: volumes.ok().flatten(),
            devices: devices.ok().flatten(),
            refusal,
        }
    }

    /// Why a node with this much taken cannot take the pod: nothing, if it can.
    pub(crate) fn obstacle(&self, node: &NodeInfo, room: &Room) -> Option<Obstacle> {
        let spec = &self.pod.spec;
        if node.spec.unschedulable && !tolerates_cordon(spec) {
            return Some(Obstacle::firm(Check::Cordon, "node(s) were unschedulable"));
        }
        if let Some(taint) = untolerated(&node.spec.taints, &spec.tolerations, REPELLING) {
            let reason = format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value);
            return Some(Obstacle::firm(Check::Taints, reason));
        }
        if !may_be_on(spec, node) {
            let reason = "node(s) didn't match Pod's node affinity/selector";
            return Some(Obstacle::firm(Check::NodeAffinity, reason));
        }
        if self.ports.iter().any(|port| room.ports.iter().any(|taken| port.clashes_with(taken))) {
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Some(Obstacle::resolvable(Check::Ports, reason));
        }
        shortage(&self.demand, &node.allocatable, &room.requested)
            .or_else(|| self.disks.as_ref().and_then(|disks| disks.obstacle(node)))
            .or_else(|| self.volumes.as_ref().and_then(|volumes| volumes.obstacle(node)))
            .or_else(|| self.spread.as_ref().and_then(|spread| spread.obstacle(node)))
            .or_else(|| self.pod_rules.as_ref().and_then(|rules| rules.obstacle(node)))
            .or_else(|| self.devices.as_ref().and_then(|devices| devices.obstacle(node)))
    }

    /// The same for a node where room is being made for pods that are no less important: the pod must fit
    /// with them and, since they may go elsewhere, without them.
    pub(crate) fn obstacle_beside_nominees(
        &self,
        node: &NodeInfo,
        room: &Room,
        ledger: &Ledger,
    ) -> Option<Obstacle> {
        let (priority, uid) = (self.pod.spec.priority, &self.pod.meta().uid);
        let mut nominees = ledger
            .nominees(&node.name)
            .filter(|other| other.spec.priority >= priority && other.meta().uid != *uid)
            .peekable();
        if nominees.peek().is_some() {
            let (mut beside, mut room) = (self.clone(), room.clone());
            for nominee in nominees {
                let held = Held::new(nominee.clone());
                room.add(&held);
                beside.arrived(&held.pod, node);
            }
            if let Some(obstacle) = beside.obstacle(node, &room) {
                return Some(obstacle);
            }
        }
        self.obstacle(node, room)
    }

    /// Another pod has come to a node.
    pub(crate) fn arrived(&mut self, other: &Pod, node: &NodeInfo) {
        self.count(other, node, 1);
    }

    /// Another pod has left a node.
    pub(crate) fn left(&mut self, other: &Pod, node: &NodeInfo) {
        self.count(other, node, -1);
    }

    fn count(&mut self, other: &Pod, node: &NodeInfo, by: i64) {
        if let Some(spread) = &mut self.spread {
            spread.count(other, node, by);
        }
        if let Some(rules) = &mut self.pod_rules {
            rules.count(other, node, by);
        }
        if let Some(disks) = &mut self.disks {
            disks.count(other, by);
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.count(other, by);
        }
    }
}

/// Whether the pod's selector and required affinity name a node.
pub(crate) fn may_be_on(spec: &PodSpec, node: &NodeInfo) -> bool {
    spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && spec.affinity.node_affinity.allows(&node.name, &node.labels)
}

pub(crate) fn tolerates_cordon(spec: &PodSpec) -> bool {
    let key = "node.kubernetes.io/unschedulable".into();
    let cordon = Taint { key, value: "".into(), effect: NO_SCHEDULE.into() };
    spec.tolerations.iter().any(|toleration| toleration.tolerates(&cordon))
}

/// What a node lacks. More than the whole node has cannot be had by making room.
pub(crate) fn shortage(demand: &Amount, has: &Amount, used: &Amount) -> Option<Obstacle> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut resolvable = true;
    if used.pods + 1 > has.pods {
        reasons.push("Too many pods".into());
    }
    let mut check = |name: &str, wanted: i64, has: i64, used: i64| {
        if wanted > 0 && wanted > has - used {
            reasons.push(format!("Insufficient {name}").into());
            resolvable &= wanted <= has;
        }
    };
    check("cpu", demand.cpu, has.cpu, used.cpu);
    check("memory", demand.memory, has.memory, used.memory);
    check("ephemeral-storage", demand.ephemeral_storage, has.ephemeral_storage, used.ephemeral_storage);
    for (name, wanted) in &demand.extended {
        let of = |amount: &Amount| amount.extended.get(name).copied().unwrap_or(0);
        check(name, *wanted, of(has), of(used));
    }
    let severity = if resolvable { Severity::Resolvable } else { Severity::Firm };
    (!reasons.is_empty()).then_some(Obstacle { check: Check::Resources, reasons, severity })
}
