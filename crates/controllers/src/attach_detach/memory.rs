//! What the controller remembers between two looks at a volume. A new one starts without: times begin anew, and
//! what was told is told again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use setpoint::Key;

/// Each map is bounded by the volumes that are, or are to be, attached to nodes.
#[derive(Default)]
pub(super) struct Memory {
    /// Since when a volume is to leave a node.
    leaving: BTreeMap<Key, BTreeMap<Box<str>, Timestamp>>,
    /// The nodes that have been told that a volume is somebody else's.
    warned: BTreeMap<Key, BTreeSet<Box<str>>>,
    /// The last failure of an attachment that was told.
    failures: BTreeMap<Key, String>,
    /// Since when a disk of the network is to leave a node.
    leaving_network: BTreeMap<Key, BTreeMap<String, Timestamp>>,
    /// The nodes that wait for another one to let go of a disk of the network.
    waiting: BTreeSet<Key>,
    /// The disks of the network that nodes have been told of, whether or not the cache shows it yet.
    network: BTreeMap<Key, BTreeSet<String>>,
    /// The attachments that are about to be deleted: nodes are told so before.
    detaching: BTreeSet<Key>,
}

impl Memory {
    /// Forgets all about a volume except on these nodes.
    pub(super) fn keep(&mut self, volume: &Key, leaving: &BTreeSet<Box<str>>, waiting: &BTreeSet<Box<str>>) {
        if let Some(nodes) = self.leaving.get_mut(volume) {
            nodes.retain(|node, _| leaving.contains(node));
        }
        if let Some(nodes) = self.warned.get_mut(volume) {
            nodes.retain(|node| waiting.contains(node));
        }
        self.leaving.retain(|_, nodes| !nodes.is_empty());
        self.warned.retain(|_, nodes| !nodes.is_empty());
    }

    /// Since when a volume is to leave a node: since now, if it was not before.
    pub(super) fn leaving_since(&mut self, volume: &Key, node: &str, now: Timestamp) -> Timestamp {
        *self.leaving.entry(volume.clone()).or_default().entry(node.into()).or_insert(now)
    }

    /// Since when each of these disks of the network, and no others, is to leave a node.
    pub(super) fn leaving_network(
        &mut self,
        node: &Key,
        leaving: BTreeSet<String>,
        now: Timestamp,
    ) -> BTreeMap<String, Timestamp> {
        let known = self.leaving_network.remove(node).unwrap_or_default();
        let since = |name: String| {
            let since = known.get(&name).copied().unwrap_or(now);
            (name, since)
        };
        let since: BTreeMap<String, Timestamp> = leaving.into_iter().map(since).collect();
        if !since.is_empty() {
            self.leaving_network.insert(node.clone(), since.clone());
        }
        since
    }

    /// Takes a disk of the network for a node, unless another node has been told of it.
    pub(super) fn take(&mut self, disk: &str, node: &Key) -> bool {
        let taken = self.network.iter().any(|(other, disks)| other != node && disks.contains(disk));
        if !taken {
            self.network.entry(node.clone()).or_default().insert(disk.to_owned());
        }
        !taken
    }

    /// A node knows of these disks of the network, and of no others.
    pub(super) fn knows(&mut self, node: &Key, disks: &[String]) {
        match disks.is_empty() {
            true => self.network.remove(node),
            false => self.network.insert(node.clone(), disks.iter().cloned().collect()),
        };
    }

    /// Whether a node may know of disks of the network besides these.
    pub(super) fn may_know_more(&self, node: &Key, disks: &[String]) -> bool {
        self.network.get(node).is_some_and(|known| known.iter().any(|disk| !disks.contains(disk)))
    }

    /// A node is gone.
    pub(super) fn forget_node(&mut self, node: &Key) {
        self.network.remove(node);
        self.leaving_network.remove(node);
        self.waiting.remove(node);
    }

    /// A node waits for these disks of the network.
    pub(super) fn waits(&mut self, node: &Key, disks: BTreeSet<String>) {
        match disks.is_empty() {
            true => self.waiting.remove(node),
            false => self.waiting.insert(node.clone()),
        };
        // What it does not wait for any more is news again.
        self.warned.retain(|disk, nodes| {
            if setpoint_volume::inline::is_on_network(disk.name()) && !disks.contains(disk.name()) {
                nodes.remove(node.name());
            }
            !nodes.is_empty()
        });
    }

    /// The nodes that wait for another one to let go of a disk of the network.
    pub(super) fn waiting(&self) -> Vec<Key> {
        self.waiting.iter().cloned().collect()
    }

    /// Whether a node's pods have yet to be told that a volume is somebody else's.
    pub(super) fn is_news(&mut self, volume: &Key, node: &str) -> bool {
        self.warned.entry(volume.clone()).or_default().insert(node.into())
    }

    /// Whether an attachment fails in another way than before.
    pub(super) fn fails_anew(&mut self, attachment: &Key, message: &str) -> bool {
        self.failures.insert(attachment.clone(), message.to_owned()).as_deref() != Some(message)
    }

    pub(super) fn detach(&mut self, attachment: &Key) {
        self.detaching.insert(attachment.clone());
    }

    pub(super) fn is_detaching(&self, attachment: &Key) -> bool {
        self.detaching.contains(attachment)
    }

    /// The attachment stays after all, or is gone.
    pub(super) fn forget(&mut self, attachment: &Key) {
        self.detaching.remove(attachment);
        self.failures.remove(attachment);
    }
}
