//! Maps events to disk and node keys.

use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::{Event, Key, Object, Queue};
use setpoint_volume::inline::{inline_disks, translated_disks};
use setpoint_volume::migrated::csi_source;
use setpoint_volume::{Claim, claim_keys};

use super::memory::Memory;
use super::observe::{self, Caches};
use super::view::{Attachment, Node};
use crate::workload::on_node::node_of;

pub(super) struct Wake {
    pub(super) by_volume: Queue<Key>,
    pub(super) by_node: Queue<Key>,
    pub(super) memory: Arc<Mutex<Memory>>,
    pub(super) caches: Arc<Caches>,
}

impl Wake {
    /// A pod's volumes never change, and most pods have none, which can be seen without decoding them. Pods without a
    /// node need no volumes.
    pub(super) fn pod_changed(&self, event: &Event) {
        let disks = self.disks_of(event.object());
        if !disks.is_empty() && event.states().any(|pod| node_of(pod).is_some()) {
            self.add_disks(disks);
        }
    }

    pub(super) fn claim_changed(&self, event: &Event) {
        self.add_disks(event.states().filter_map(volume_of));
    }

    pub(super) fn volume_changed(&self, event: &Event) {
        self.by_volume.add(event.object().key().clone());
    }

    pub(super) fn attachment_changed(&self, event: &Event) {
        if matches!(event, Event::Deleted { .. }) {
            self.memory.lock().forget(event.object().key());
        }
        if let Ok(attachment) = event.object().view::<Attachment>() {
            self.by_node.add(Key::cluster(&*attachment.spec.node_name));
            self.add_disks(attachment.disk());
        }
    }

    /// A CSIDriver change affects all volumes of the driver.
    pub(super) fn driver_changed(&self, event: &Event) {
        let is_its = |driver: &str| driver == event.object().key().name();
        for volume in self.caches.volumes.list(None).unwrap_or_default() {
            if csi_source(&volume).is_some_and(|csi| is_its(&csi.driver)) {
                self.by_volume.add(volume.key().clone());
            }
        }
        let inline = self.caches.pods.objects().list(None).into_iter().flat_map(|pod| translated_disks(&pod));
        let inline = inline.filter(|disk| is_its(&disk.csi.driver));
        self.add_disks(inline.map(|disk| Key::cluster(disk.csi.unique_name())));
    }

    /// Enqueues the volumes attached to a changed node. If the node has only now become managed, also enqueues those of
    /// its pods.
    pub(super) fn node_changed(&self, event: &Event) {
        if is_same_node(event) {
            return;
        }
        let name = event.object().key().name();
        self.by_node.add(event.object().key().clone());
        if matches!(event, Event::Deleted { .. }) {
            self.memory.lock().forget_node(event.object().key());
        }
        self.memory.lock().waiting().into_iter().for_each(|node| self.by_node.add(node));
        for attachment in observe::attachments_on(&self.caches.attachments, name).unwrap_or_default() {
            self.add_disks(attachment.disk());
        }
        let served = |node: &Object| node.view::<Node>().is_ok_and(Node::is_served);
        if served(event.object()) && !event.old().is_some_and(served) {
            let pods = self.caches.on_node.pods(name).unwrap_or_default();
            self.add_disks(pods.iter().flat_map(|pod| self.disks_of(pod.object())));
        }
    }

    /// Lists the disks that a pod uses, through claims or inline.
    fn disks_of(&self, pod: &Object) -> Vec<Key> {
        let claims = claim_keys(pod).filter_map(|claim| self.caches.claims.objects().get(&claim));
        let claimed = claims.filter_map(|claim| volume_of(&claim));
        let inline = inline_disks(pod);
        claimed.chain(inline.iter().map(|inline| Key::cluster(inline.disk.unique_name()))).collect()
    }

    fn add_disks(&self, disks: impl IntoIterator<Item = Key>) {
        disks.into_iter().for_each(|disk| self.by_volume.add(disk));
    }
}

fn volume_of(claim: &Object) -> Option<Key> {
    let name = &claim.view::<Claim>().ok()?.spec.volume_name;
    (!name.is_empty()).then(|| Key::cluster(&**name))
}

fn is_same_node(event: &Event) -> bool {
    let Event::Updated { old, new } = event else { return false };
    matches!((old.view::<Node>(), new.view::<Node>()), (Ok(old), Ok(new)) if old == new)
}
