//! Reads the input of a plan from the caches. No client.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::indexer::IndexFn;
use setpoint::object::DecodeError;
use setpoint::{Cached, Informer, Key, Lister};
use setpoint_volume::inline::{PODS_BY_DISK, index_by_disk, translated_disks};
use setpoint_volume::{
    Claim, ClaimRef, Csi, PODS_BY_CLAIM, PodVolumes, Volume, index_by_claim, is_terminated,
};
use sha2::{Digest, Sha256};

use super::disk::Disk;
use super::view::{Attachment, Driver, Node};
use crate::workload::on_node::OnNode;

/// Index of attachments by disk.
const BY_DISK: &str = "disk";
/// Index of attachments by node.
const BY_NODE: &str = "node";

pub(super) struct Caches {
    pub(super) pods: Lister<PodVolumes>,
    pub(super) claims: Lister<Claim>,
    pub(super) volumes: Lister<Volume>,
    pub(super) nodes: Lister<Node>,
    pub(super) attachments: Lister<Attachment>,
    pub(super) drivers: Lister<Driver>,
    /// Pods by node.
    pub(super) on_node: OnNode<PodVolumes>,
}

/// A volume on a node: wanted, attached, or both.
#[derive(Clone, Default)]
pub(super) struct Site {
    pub(super) attachment: Option<Cached<Attachment>>,
    /// The pods that use it there.
    pub(super) pods: Vec<Cached<PodVolumes>>,
    pub(super) node: Option<Cached<Node>>,
}

pub(super) type Sites = BTreeMap<Box<str>, Site>;

pub(super) fn index(pods: &Informer, attachments: &Informer) {
    index_by_claim(pods);
    index_by_disk(pods);
    let by_disk: IndexFn = Arc::new(|attachment| {
        let disk = attachment.view::<Attachment>().ok().and_then(Attachment::disk);
        disk.into_iter().map(|disk| disk.name().to_owned()).collect()
    });
    let by_node: IndexFn = Arc::new(|attachment| {
        attachment.view::<Attachment>().ok().map(|one| one.spec.node_name.to_string()).into_iter().collect()
    });
    attachments.add_index(BY_DISK, by_disk);
    attachments.add_index(BY_NODE, by_node);
}

pub(super) fn attachments_on(
    attachments: &Lister<Attachment>,
    node: &str,
) -> Result<Vec<Cached<Attachment>>, DecodeError> {
    attachments.indexed(BY_NODE, node)
}

/// Returns the name of the VolumeAttachment for a volume and node.
pub(super) fn attachment_name(csi: &Csi, node: &str) -> String {
    let digest = Sha256::digest(format!("{}{}{node}", csi.volume_handle, csi.driver));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

impl Caches {
    /// Returns the disk of a key. `None` if no driver attaches it.
    pub(super) fn disk(&self, key: &Key) -> Result<Option<Disk>, DecodeError> {
        if let Some(volume) = self.volumes.get(key)? {
            return Ok(Disk::of_volume(&volume));
        }
        for pod in self.pods.indexed(PODS_BY_DISK, key.name())? {
            let named = translated_disks(pod.object()).find(|disk| disk.csi.unique_name() == key.name());
            if let Some(disk) = named {
                return Ok(Some(Disk::of_pods(disk)));
            }
        }
        let attached = self.attachments.indexed(BY_DISK, key.name())?;
        Ok(attached.iter().find_map(|attachment| attachment.inline()).map(Disk::unused))
    }

    /// Lists the nodes where a disk is wanted or attached.
    pub(super) fn sites(&self, disk: &Disk) -> Result<Sites, DecodeError> {
        let mut sites = Sites::new();
        for attachment in self.attachments.indexed(BY_DISK, disk.key.name())? {
            let node = attachment.spec.node_name.clone();
            if *attachment.key().name() == *attachment_name(&disk.csi, &node) {
                sites.entry(node).or_default().attachment = Some(attachment);
            }
        }
        let driver = self.drivers.get(&Key::cluster(&*disk.csi.driver))?;
        if driver.is_none_or(|driver| driver.attaches()) {
            for pod in self.pods_of(disk)? {
                if let Some(node) = pod.node() {
                    sites.entry(node.into()).or_default().pods.push(pod.clone());
                }
            }
        }
        for (name, site) in &mut sites {
            site.node = self.nodes.get(&Key::cluster(&**name))?;
            // Nodes without the annotation attach their volumes themselves.
            if !site.node.as_ref().is_some_and(|node| node.is_served()) {
                site.pods.clear();
            }
        }
        sites.retain(|_, site| site.attachment.is_some() || !site.pods.is_empty());
        Ok(sites)
    }

    /// Lists running pods that use a disk.
    fn pods_of(&self, disk: &Disk) -> Result<Vec<Cached<PodVolumes>>, DecodeError> {
        let mut pods = match &disk.claim {
            Some(reference) => self.pods_through(disk, reference)?,
            None if disk.is_inline => self.pods.indexed(PODS_BY_DISK, disk.key.name())?,
            None => Vec::new(),
        };
        pods.retain(|pod| !is_terminated(pod));
        Ok(pods)
    }

    /// Lists pods that use a volume through its bound claim.
    fn pods_through(
        &self,
        disk: &Disk,
        reference: &ClaimRef,
    ) -> Result<Vec<Cached<PodVolumes>>, DecodeError> {
        let is_bound = |claim: &Cached<Claim>| {
            claim.meta().uid == reference.uid
                && &*claim.status.phase == "Bound"
                && *claim.spec.volume_name == *disk.key.name()
        };
        let Some(claim) = self.claims.get(&reference.key())?.filter(is_bound) else { return Ok(Vec::new()) };
        let mut pods = self.pods.indexed(PODS_BY_CLAIM, &reference.key().to_string())?;
        pods.retain(|pod| pod.volumes().iter().any(|volume| volume.refers_to(pod.object(), claim.object())));
        Ok(pods)
    }
}
