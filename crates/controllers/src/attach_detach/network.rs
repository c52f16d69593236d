//! Network disks (such as iSCSI): they need no attach operation, but nodes wait until they are listed in
//! `volumesAttached`.
//!
//! Invariants: `volumesAttached` is the only record, so a new leader continues from it. A disk that cannot be shared is
//! listed for a second node only after the first has released it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use setpoint::object::DecodeError;
use setpoint::{Cached, EventType, Key, ReconcileError};
use setpoint_volume::inline::{InlineDisk, PODS_BY_DISK, inline_disks, is_on_network};
use setpoint_volume::{PodVolumes, bound_volume, is_terminated};

use super::observe::{Caches, Site};
use super::plan::{DetachTime, may_detach};
use super::reconcile::Attacher;
use super::view::Node;

/// A disk used by pods on a node.
pub(super) struct Wanted {
    /// The name used in events.
    name: String,
    can_be_shared: bool,
    pods: Vec<Cached<PodVolumes>>,
}

/// The network disks a node should have attached.
#[derive(Default)]
pub(super) struct Attached {
    pub(super) names: Vec<String>,
    /// The disks it does not list yet.
    pub(super) new: Vec<Wanted>,
    /// The reason of each forced detach.
    pub(super) forced: Vec<&'static str>,
    pub(super) recheck_after: Option<Duration>,
}

/// How soon to check again when a fresh read shows a disk in use that the cache does not.
const RECHECK_IN_USE: Duration = Duration::from_secs(10);

impl Attached {
    /// Keeps a disk attached until the next check.
    fn keep(&mut self, name: String, recheck_after: Duration) {
        self.recheck_after = Some(self.recheck_after.map_or(recheck_after, |least| least.min(recheck_after)));
        self.names.push(name);
    }
}

impl Caches {
    /// Returns the unique name of a network disk, or `None` if the key is not one.
    pub(super) fn network_name(&self, key: &Key) -> Result<Option<String>, DecodeError> {
        match self.volumes.get(key)? {
            Some(volume) => Ok(volume.network_name()),
            None => Ok(Some(key.name().to_owned()).filter(|name| is_on_network(name))),
        }
    }

    /// Lists the nodes that use a network disk or have it in `volumesAttached`.
    pub(super) fn network_nodes(&self, key: &Key, name: &str) -> Result<BTreeSet<Key>, DecodeError> {
        let mut pods = self.pods.indexed(PODS_BY_DISK, name)?;
        if let Some(claim) = self.volumes.get(key)?.and_then(|volume| volume.spec.claim_ref.clone()) {
            pods.extend(self.pods.indexed(setpoint_volume::PODS_BY_CLAIM, &claim.key().to_string())?);
        }
        let nodes = self.nodes.list(None)?;
        let attached = nodes.iter().filter(|node| node.attached.iter().any(|one| **one == *name));
        let of_pods = pods.iter().filter_map(|pod| pod.node()).map(Key::cluster);
        Ok(of_pods.chain(attached.map(|node| node.key().clone())).collect())
    }

    /// Lists the network disks that a node's pods use.
    fn network_wanted(&self, node: &str) -> Result<BTreeMap<String, Wanted>, DecodeError> {
        let mut wanted = BTreeMap::<String, Wanted>::new();
        let mut want = |unique: String, name: &str, can_be_shared: bool, pod: &Cached<PodVolumes>| {
            let new = || Wanted { name: name.to_owned(), can_be_shared, pods: Vec::new() };
            wanted.entry(unique).or_insert_with(new).pods.push(pod.clone());
        };
        for pod in self.on_node.pods(node)?.iter().filter(|pod| !is_terminated(pod)) {
            for inline in inline_disks(pod.object()) {
                if let InlineDisk::OnNetwork(unique) = inline.disk {
                    want(unique, &inline.name, true, pod);
                }
            }
            for volume in pod.volumes() {
                let bound = bound_volume(pod, volume, &self.claims, &self.volumes)?;
                let Some(volume) = bound else { continue };
                if let Some(unique) = volume.network_name() {
                    want(unique, volume.key().name(), volume.can_be_shared(), pod);
                }
            }
        }
        Ok(wanted)
    }

    /// Whether another node has a disk in `volumesAttached`.
    fn is_on_another_node(&self, name: &str, node: &Key) -> Result<bool, DecodeError> {
        let others = self.nodes.list(None)?;
        let mut others = others.iter().filter(|other| other.key() != node);
        Ok(others.any(|other| other.attached.iter().any(|one| **one == *name)))
    }
}

impl Attacher {
    /// Enqueues the nodes that a network disk concerns.
    pub(super) fn wake_nodes(&self, key: &Key, name: &str) -> Result<(), DecodeError> {
        self.caches.network_nodes(key, name)?.into_iter().for_each(|node| self.by_node.add(node));
        Ok(())
    }

    /// Computes the network disks for a node's `volumesAttached`.
    pub(super) async fn network_disks(&self, node: &Cached<Node>) -> Result<Attached, ReconcileError> {
        let wanted = self.caches.network_wanted(node.key().name())?;
        let known: BTreeSet<String> =
            node.attached.iter().filter(|name| is_on_network(name)).map(|name| name.to_string()).collect();
        let mut attached = Attached::default();
        self.release_unwanted(
            node,
            known.iter().filter(|name| !wanted.contains_key(*name)).cloned().collect(),
            &mut attached,
        )
        .await?;
        let mut blocked = BTreeSet::new();
        for (name, disk) in wanted {
            if known.contains(&name) {
                attached.names.push(name);
            } else if disk.can_be_shared || self.take(&name, node.key())? {
                attached.names.push(name);
                attached.new.push(disk);
            } else {
                self.multi_attach_events(&name, node.key(), &disk);
                blocked.insert(name);
            }
        }
        self.memory.lock().set_waiting(node.key(), blocked);
        Ok(attached)
    }

    /// Takes an exclusive disk for a node. Also consults the memory, since the cache may lag behind writes.
    fn take(&self, name: &str, node: &Key) -> Result<bool, DecodeError> {
        Ok(!self.caches.is_on_another_node(name, node)? && self.memory.lock().take(name, node))
    }

    /// Reads the node past the cache if a written `volumesAttached` differs from the cached one, and corrects the
    /// memory.
    pub(super) async fn refresh_memory(&self, node: &Key, shown: &[String]) -> Result<(), ReconcileError> {
        if !self.memory.lock().may_have_others(node, shown) {
            return Ok(());
        }
        let fresh = self.fresh_node(node).await?;
        let known = fresh.iter().flat_map(|node| &node.attached).filter(|name| is_on_network(name));
        let known: Vec<String> = known.map(|name| name.to_string()).collect();
        self.memory.lock().record_attached(node, &known);
        Ok(())
    }

    /// Decides which unwanted disks must be kept because the node still uses them.
    async fn release_unwanted(
        &self,
        node: &Cached<Node>,
        unwanted: BTreeSet<String>,
        attached: &mut Attached,
    ) -> Result<(), ReconcileError> {
        let now = self.clock.now();
        let pending = self.memory.lock().pending_release(node.key(), unwanted, now);
        let site = Site { node: Some(node.clone()), ..Site::default() };
        for (name, since) in pending {
            match may_detach(&site, &name, since, self.by_force, now) {
                DetachTime::After(time) => attached.keep(name, time),
                DetachTime::Now { force: Some(reason) } => attached.forced.push(reason),
                // The cache may never show that it was in use for a while.
                DetachTime::Now { force: None } if self.still_uses(&name, node.key()).await? => {
                    attached.keep(name, RECHECK_IN_USE);
                }
                DetachTime::Now { force: None } => {}
            }
        }
        Ok(())
    }

    fn multi_attach_events(&self, name: &str, node: &Key, disk: &Wanted) {
        if !self.memory.lock().is_first_warning(&Key::cluster(name), node.name()) {
            return;
        }
        let message = format!(
            "Multi-Attach error for volume {:?} Volume is already exclusively attached to one node and can't be \
             attached to another",
            disk.name
        );
        for pod in &disk.pods {
            self.pod_event(pod, EventType::Warning, "FailedAttachVolume", message.clone());
        }
    }

    pub(super) fn network_attached_events(&self, disk: &Wanted) {
        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", disk.name);
        for pod in &disk.pods {
            self.pod_event(pod, EventType::Normal, "SuccessfulAttachVolume", message.clone());
        }
    }
}
