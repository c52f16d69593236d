//! Volume requirements of a pod, and the volumes that satisfy them on a node. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use setpoint::object::DecodeError;
use setpoint::{Cached, Key};
use setpoint_volume::{
    Claim, Class, FREE_BY_CLASS, NO_PROVISIONER, PODS_BY_CLAIM, PodVolume, PodVolumes, SELECTED_NODE,
    VOLUMES_BY_CLAIM, Volume, claim_keys, claims_of, is_delayed, matching,
};

use super::caches::VolumeCaches;
use super::limits::Counted;
use crate::filter::{Check, Obstacle, Severity};
use crate::ledger::{Ledger, NodeInfo};
use crate::view::Pod;

const NO_MATCH: &str = "node(s) didn't find available persistent volumes to bind";
const OUT_OF_REACH: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const OTHER_ZONE: &str = "node(s) had no available volume zone";
const EXCLUSIVE: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

/// Topology labels of volumes and nodes: the deprecated name and the current one.
const TOPOLOGY_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

#[derive(Clone)]
pub(crate) struct VolumeNeeds<'a> {
    caches: &'a VolumeCaches,
    /// The volumes of the pod's bound claims. `None` for a missing volume.
    bound: Vec<Option<Cached<Volume>>>,
    /// Claims with delayed binding, smallest first.
    delayed: Vec<Delayed>,
    topology_labels: Vec<TopologyLabel>,
    /// The pod's ReadWriteOncePod claims, and how many of them other pods use.
    exclusive: BTreeSet<Key>,
    rivals: i64,
    counted: Counted,
}

/// A claim that is bound after the pod has a node.
#[derive(Clone)]
struct Delayed {
    claim: Cached<Claim>,
    class: Option<Cached<Class>>,
    /// Volumes that it could be bound to.
    candidates: Vec<Cached<Volume>>,
}

/// A topology label of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TopologyLabel {
    label: &'static str,
    label_now: &'static str,
    values: BTreeSet<String>,
}

/// How a pod's claims are satisfied on a node.
#[derive(Default)]
pub(super) struct Served {
    pub(super) bindings: Vec<(Cached<Claim>, Cached<Volume>)>,
    pub(super) provisions: Vec<Cached<Claim>>,
}

/// The v1.34 message for a pod that fits nowhere.
type Refusal = String;

impl<'a> VolumeNeeds<'a> {
    /// Computes what a pod's volumes need. `None` if it has no claims, an error if no node can satisfy them now.
    pub(crate) fn of(pod: &Pod, ledger: &Ledger, caches: &'a VolumeCaches) -> Result<Option<Self>, Refusal> {
        let Some(view) = claims_of(pod.object()) else { return Ok(None) };
        let claimed = |volume: &&PodVolume| volume.claim_name(pod.key().name()).is_some();
        let volumes: Vec<&PodVolume> = view.volumes().iter().filter(claimed).collect();
        if volumes.is_empty() {
            return Ok(None);
        }
        Self::of_volumes(pod, &volumes, ledger, caches).map(Some)
    }

    fn of_volumes(
        pod: &Pod,
        volumes: &[&PodVolume],
        ledger: &Ledger,
        caches: &'a VolumeCaches,
    ) -> Result<Self, Refusal> {
        let claims = claims(pod, volumes, caches)?;
        let mut needs = Self {
            caches,
            bound: Vec::new(),
            delayed: Vec::new(),
            topology_labels: Vec::new(),
            exclusive: BTreeSet::new(),
            rivals: 0,
            counted: Counted::of(claims.iter().map(|(_, claim)| claim), caches),
        };
        for (_, claim) in &claims {
            needs.add(claim).map_err(|error| error.to_string())??;
        }
        needs.delayed.sort_by_key(|delayed| delayed.claim.requested());
        for (_, claim) in claims.iter().filter(|(volume, _)| !volume.is_ephemeral()) {
            needs.add_topology_labels(claim).map_err(|error| error.to_string())??;
        }
        needs.count_rivals(pod, &claims, ledger).map_err(|error| error.to_string())?;
        Ok(needs)
    }

    fn add(&mut self, claim: &Cached<Claim>) -> Result<Result<(), Refusal>, DecodeError> {
        if claim.is_bound() {
            self.bound.push(self.caches.volumes.get(&Key::cluster(&*claim.spec.volume_name))?);
            return Ok(Ok(()));
        }
        let class = self.caches.classes.get(&Key::cluster(claim.class()))?;
        if !is_delayed(class.as_deref()) || !claim.spec.volume_name.is_empty() {
            return Ok(Err("pod has unbound immediate PersistentVolumeClaims".into()));
        }
        let mut candidates = self.caches.volumes.indexed(FREE_BY_CLASS, claim.class())?;
        candidates.extend(self.caches.volumes.indexed(VOLUMES_BY_CLAIM, &claim.key().to_string())?);
        candidates.retain(|volume| volume.class() == claim.class());
        self.delayed.push(Delayed { claim: claim.clone(), class, candidates });
        Ok(Ok(()))
    }

    /// Adds the topology labels of a claim's volume. As in v1.34, the volume must exist, except for ephemeral claims.
    fn add_topology_labels(&mut self, claim: &Cached<Claim>) -> Result<Result<(), Refusal>, DecodeError> {
        if claim.spec.volume_name.is_empty() {
            return Ok(Ok(()));
        }
        let key = Key::cluster(&*claim.spec.volume_name);
        let Some(volume) = self.caches.volumes.get(&key)? else {
            return Ok(Err(format!("persistentvolume {:?} not found", key.name())));
        };
        self.topology_labels.extend(topology_labels_of(&volume));
        Ok(Ok(()))
    }

    fn count_rivals(
        &mut self,
        pod: &Pod,
        claims: &[(&PodVolume, Cached<Claim>)],
        ledger: &Ledger,
    ) -> Result<(), DecodeError> {
        let exclusive = |claim: &Claim| claim.access_modes().iter().any(|mode| &**mode == "ReadWriteOncePod");
        let own = claims.iter().filter(|(volume, claim)| !volume.is_ephemeral() && exclusive(claim));
        self.exclusive = own.map(|(_, claim)| claim.key().clone()).collect();
        for claim in &self.exclusive {
            let users = self.caches.pods.indexed(PODS_BY_CLAIM, &claim.to_string())?;
            let elsewhere = |user: &&Cached<PodVolumes>| {
                user.meta().uid != pod.meta().uid && ledger.holds(&user.meta().uid)
            };
            self.rivals += i64::from(users.iter().any(|user| elsewhere(&user)));
        }
        Ok(())
    }

    /// Accounts for another pod that was added to or removed from a node.
    pub(crate) fn count(&mut self, other: &Pod, by: i64) {
        if !self.exclusive.is_empty() {
            let shared = claim_keys(other.object()).filter(|claim| self.exclusive.contains(claim)).count();
            self.rivals += by * shared as i64;
        }
    }

    /// Returns why a node cannot satisfy the pod's volumes, or `None` if it can.
    pub(crate) fn obstacle(&self, node: &NodeInfo) -> Option<Obstacle> {
        if self.rivals > 0 {
            return Some(Obstacle::resolvable(Check::VolumeUse, EXCLUSIVE));
        }
        if self.counted.exceeds(node, self.caches) {
            return Some(Obstacle::resolvable(Check::VolumeUse, "node(s) exceed max volume count"));
        }
        if let Err(reasons) = self.served_on(node) {
            let reasons = reasons.into_iter().map(Cow::from).collect();
            return Some(Obstacle { check: Check::Volumes, reasons, severity: Severity::Firm });
        }
        let elsewhere = !self.topology_labels.iter().all(|label| label.is_of(node));
        (elsewhere && has_topology_label(node)).then(|| Obstacle::firm(Check::Volumes, OTHER_ZONE))
    }

    /// Finds volumes for the claims on a node, or the reasons why some cannot be satisfied.
    pub(super) fn served_on(&self, node: &NodeInfo) -> Result<Served, Vec<&'static str>> {
        let mut reasons = Vec::new();
        let mut missing = false;
        for volume in &self.bound {
            match volume {
                None => missing = true,
                Some(volume) if !volume.is_reached_by(&node.labels) => reasons.push(OUT_OF_REACH),
                Some(_) => continue,
            }
            break;
        }
        let served = match self.serve_delayed(node) {
            Ok(served) => served,
            Err(reason) => {
                reasons.push(reason);
                Served::default()
            }
        };
        if missing {
            reasons.push(NO_VOLUME);
        }
        if reasons.is_empty() { Ok(served) } else { Err(reasons) }
    }

    fn serve_delayed(&self, node: &NodeInfo) -> Result<Served, &'static str> {
        let mut served = Served::default();
        let mut chosen: BTreeSet<&Key> = BTreeSet::new();
        let mut unmatched = Vec::new();
        for delayed in &self.delayed {
            match delayed.claim.metadata.get(SELECTED_NODE) {
                Some(selected) if selected != node.name => return Err(NO_MATCH),
                Some(_) => {
                    unmatched.push(delayed);
                    continue;
                }
                None => {}
            }
            let free = delayed.candidates.iter().filter(|volume| !chosen.contains(volume.key()));
            let reaches = |volume: &Volume| volume.is_reached_by(&node.labels);
            match matching::best_on_node(&delayed.claim, free, reaches) {
                None => unmatched.push(delayed),
                Some(volume) => {
                    chosen.insert(volume.key());
                    served.bindings.push((delayed.claim.clone(), volume.clone()));
                }
            }
        }
        for delayed in unmatched {
            delayed.can_be_made_for(node, self.caches)?;
            served.provisions.push(delayed.claim.clone());
        }
        Ok(served)
    }
}

impl Delayed {
    /// Whether a volume can be provisioned for the claim on a node.
    fn can_be_made_for(&self, node: &NodeInfo, caches: &VolumeCaches) -> Result<(), &'static str> {
        let Some(class) = &self.class else { return Err(NO_MATCH) };
        let no_provisioner = class.provisioner.is_empty() || &*class.provisioner == NO_PROVISIONER;
        if no_provisioner || !class.allows(&node.labels) {
            return Err(NO_MATCH);
        }
        let driver = caches.drivers.get(&Key::cluster(&*class.provisioner)).ok().flatten();
        if !driver.is_some_and(|driver| driver.publishes_capacity()) {
            return Ok(());
        }
        let size = self.claim.requested();
        let has_room = caches.capacities.list(None).unwrap_or_default().iter().any(|capacity| {
            *capacity.storage_class_name == *class.key().name()
                && capacity.has_room_for(size)
                && capacity.node_topology.as_ref().is_some_and(|nodes| nodes.matches(&node.labels))
        });
        if has_room { Ok(()) } else { Err(NO_SPACE) }
    }
}

impl TopologyLabel {
    fn is_of(&self, node: &NodeInfo) -> bool {
        let value = node.labels.get(self.label).or_else(|| node.labels.get(self.label_now));
        value.is_some_and(|value| self.values.contains(value))
    }
}

/// Returns a volume's topology labels. Multiple values are separated by `__`.
fn topology_labels_of(volume: &Cached<Volume>) -> Vec<TopologyLabel> {
    let of = |(label, label_now): &(&'static str, &'static str)| {
        let value = volume.meta().label(label)?;
        let values = value.split("__").map(str::to_owned).collect();
        Some(TopologyLabel { label, label_now, values })
    };
    TOPOLOGY_LABELS.iter().filter_map(of).collect()
}

/// Whether a node has topology labels. Without any, the zone check is skipped (single-zone clusters).
fn has_topology_label(node: &NodeInfo) -> bool {
    TOPOLOGY_LABELS.iter().any(|(label, _)| node.labels.contains_key(label))
}

/// Returns the claims of a pod's volumes, if all exist and are usable.
fn claims<'v>(
    pod: &Pod,
    volumes: &[&'v PodVolume],
    caches: &VolumeCaches,
) -> Result<Vec<(&'v PodVolume, Cached<Claim>)>, Refusal> {
    let mut claims = Vec::new();
    for volume in volumes {
        let name = volume.claim_name(pod.key().name()).unwrap_or_default();
        let claim = caches.claims.get(&pod.key().sibling(&*name)).map_err(|error| error.to_string())?;
        let Some(claim) = claim else {
            return Err(match volume.is_ephemeral() {
                true => {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    )
                }
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if &*claim.status.phase == "Lost" {
            let volume = &claim.spec.volume_name;
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.meta().is_being_deleted() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if !volume.refers_to(pod.object(), claim.object()) {
            let (claim, pod) = (claim.key(), pod.key());
            return Err(format!("PVC {claim} was not created for pod {pod} (pod is not owner)"));
        }
        claims.push((*volume, claim));
    }
    Ok(claims)
}
