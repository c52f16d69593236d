//! Filtering: which nodes can run a pod. Pure.
//!
//! The checks run in v1.34's order, and the first that fails gives its reasons. Only the resource check gives several.
//! Anything a check needs from the whole cluster is computed once per pod, and checks that do not apply to the pod are
//! skipped.

use std::borrow::Cow;
use std::collections::BTreeSet;

use setpoint_placement::{Amount, NO_EXECUTE, NO_SCHEDULE, Port, Taint, untolerated};

use crate::demand::demand;
use crate::devices::DeviceNeeds;
use crate::interpod::PodRules;
use crate::ledger::{Ledger, NodeInfo, NodeUsage, PodInfo};
use crate::listers::Listers;
use crate::spread::Spread;
use crate::view::{Pod, PodSpec};
use crate::volumes::{DiskNeeds, VolumeNeeds};

/// Taint effects that keep pods off a node.
pub(crate) const REPELLING: &[&str] = &[NO_SCHEDULE, NO_EXECUTE];

/// A check that a node has to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Cordon,
    Taints,
    NodeAffinity,
    Ports,
    Resources,
    Spread,
    PodAffinity,
    /// Volumes used exclusively by other pods, or volume limits exceeded.
    VolumeUse,
    /// Volumes that are missing or not accessible from the node.
    Volumes,
    /// Devices that are missing, allocated, or not accessible from the node.
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

    /// Every check. Used when the cluster has no nodes.
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

/// Whether an obstacle can be overcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Evicting pods from the node could help.
    Resolvable,
    /// Nothing on this node helps.
    Firm,
    /// An error that no node can resolve.
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

/// Why a pod fits on no node at all, independent of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) check: Check,
    /// The v1.34 message.
    pub(crate) message: String,
}

/// A pod's requirements, evaluated against the current cluster.
#[derive(Clone)]
pub(crate) struct Needs<'a> {
    pub(crate) pod: &'a Pod,
    demand: Amount,
    ports: Vec<&'a Port>,
    /// Node names that the pod's affinity is limited to, if any.
    pub(crate) named: Option<BTreeSet<&'a str>>,
    spread: Option<Spread<'a>>,
    pod_rules: Option<PodRules<'a>>,
    disks: Option<DiskNeeds>,
    volumes: Option<VolumeNeeds<'a>>,
    pub(crate) devices: Option<DeviceNeeds<'a>>,
    pub(crate) refusal: Option<Refusal>,
}

impl<'a> Needs<'a> {
    pub(crate) fn of(pod: &'a Pod, ledger: &Ledger, listers: &'a Listers) -> Self {
        let required = pod.spec.affinity.node_affinity.required.as_ref();
        let named = required.and_then(|required| required.named_nodes());
        let refuse = |check: Check| move |message: String| Refusal { check, message };
        let contradicts = named.as_ref().is_some_and(BTreeSet::is_empty);
        let contradiction =
            contradicts.then(|| refuse(Check::NodeAffinity)("pod affinity terms conflict".into()));
        let volumes = VolumeNeeds::of(pod, ledger, &listers.volumes).map_err(refuse(Check::Volumes));
        let devices = DeviceNeeds::of(pod, &ledger.devices, &listers.devices).map_err(refuse(Check::Devices));
        // In v1.34's order.
        let refusal = contradiction.or(volumes.as_ref().err().cloned()).or(devices.as_ref().err().cloned());
        Self {
            pod,
            demand: demand(pod),
            ports: pod.spec.host_ports().collect(),
            named,
            spread: Spread::required_by(pod, ledger),
            pod_rules: PodRules::of(pod, ledger, listers),
            disks: DiskNeeds::of(pod),
            volumes: volumes.ok().flatten(),
            devices: devices.ok().flatten(),
            refusal,
        }
    }

    /// Returns why a node with this usage cannot run the pod, or `None` if it can.
    pub(crate) fn obstacle(&self, node: &NodeInfo, usage: &NodeUsage) -> Option<Obstacle> {
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
        if self.ports.iter().any(|port| usage.ports.iter().any(|taken| port.clashes_with(taken))) {
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Some(Obstacle::resolvable(Check::Ports, reason));
        }
        shortage(&self.demand, &node.allocatable, &usage.requested)
            .or_else(|| self.disks.as_ref().and_then(|disks| disks.obstacle(node)))
            .or_else(|| self.volumes.as_ref().and_then(|volumes| volumes.obstacle(node)))
            .or_else(|| self.spread.as_ref().and_then(|spread| spread.obstacle(node)))
            .or_else(|| self.pod_rules.as_ref().and_then(|rules| rules.obstacle(node)))
            .or_else(|| self.devices.as_ref().and_then(|devices| devices.obstacle(node)))
    }

    /// Like [`obstacle`](Self::obstacle) for a node with nominated pods of equal or higher priority. The pod must fit
    /// with them and, since they may end up elsewhere, without them.
    pub(crate) fn obstacle_beside_nominees(
        &self,
        node: &NodeInfo,
        usage: &NodeUsage,
        ledger: &Ledger,
    ) -> Option<Obstacle> {
        let (priority, uid) = (self.pod.spec.priority, &self.pod.meta().uid);
        let mut nominees = ledger
            .nominees(&node.name)
            .filter(|other| other.spec.priority >= priority && other.meta().uid != *uid)
            .peekable();
        if nominees.peek().is_some() {
            let (mut beside, mut usage) = (self.clone(), usage.clone());
            for nominee in nominees {
                let pod_info = PodInfo::new(nominee.clone());
                usage.add(&pod_info);
                beside.arrived(&pod_info.pod, node);
            }
            if let Some(obstacle) = beside.obstacle(node, &usage) {
                return Some(obstacle);
            }
        }
        self.obstacle(node, usage)
    }

    /// Accounts for another pod that was added to a node.
    pub(crate) fn arrived(&mut self, other: &Pod, node: &NodeInfo) {
        self.count(other, node, 1);
    }

    /// Accounts for another pod that was removed from a node.
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

/// Whether a node matches the pod's node selector and required node affinity.
pub(crate) fn may_be_on(spec: &PodSpec, node: &NodeInfo) -> bool {
    spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && spec.affinity.node_affinity.allows(&node.name, &node.labels)
}

pub(crate) fn tolerates_cordon(spec: &PodSpec) -> bool {
    let key = "node.kubernetes.io/unschedulable".into();
    let cordon = Taint { key, value: "".into(), effect: NO_SCHEDULE.into() };
    spec.tolerations.iter().any(|toleration| toleration.tolerates(&cordon))
}

/// Returns the resources that a node lacks. Preemption cannot help if the pod requests more than the node's total.
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
