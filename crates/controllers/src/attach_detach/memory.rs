//! In-memory state kept between reconciles. It is lost on restart: timeouts start over and events are repeated.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use setpoint::Key;

/// Every map is bounded by the volumes that are, or should be, attached to nodes.
#[derive(Default)]
pub(super) struct Memory {
    /// When each node's detach of a volume became pending.
    pending_detach: BTreeMap<Key, BTreeMap<Box<str>, Timestamp>>,
    /// Nodes whose pods have got a Multi-Attach event for a volume.
    warned: BTreeMap<Key, BTreeSet<Box<str>>>,
    /// The last reported failure of an attachment.
    failures: BTreeMap<Key, String>,
    /// When each node's release of a network disk became pending.
    pending_release: BTreeMap<Key, BTreeMap<String, Timestamp>>,
    /// Nodes that wait for another node to release a network disk.
    waiting: BTreeSet<Key>,
    /// The network disks written to each node's `volumesAttached`, including writes that the cache does not show yet.
    network: BTreeMap<Key, BTreeSet<String>>,
    /// Attachments about to be deleted. They are removed from `volumesAttached` first.
    detaching: BTreeSet<Key>,
}

impl Memory {
    /// Forgets everything about a volume except on these nodes.
    pub(super) fn keep(
        &mut self,
        volume: &Key,
        pending_detach: &BTreeSet<Box<str>>,
        waiting: &BTreeSet<Box<str>>,
    ) {
        if let Some(nodes) = self.pending_detach.get_mut(volume) {
            nodes.retain(|node, _| pending_detach.contains(node));
        }
        if let Some(nodes) = self.warned.get_mut(volume) {
            nodes.retain(|node| waiting.contains(node));
        }
        self.pending_detach.retain(|_, nodes| !nodes.is_empty());
        self.warned.retain(|_, nodes| !nodes.is_empty());
    }

    /// Returns when the detach of a volume from a node became pending, now if it was not.
    pub(super) fn pending_since(&mut self, volume: &Key, node: &str, now: Timestamp) -> Timestamp {
        *self.pending_detach.entry(volume.clone()).or_default().entry(node.into()).or_insert(now)
    }

    /// Sets the network disks that a node should release, and returns since when each has been pending.
    pub(super) fn pending_release(
        &mut self,
        node: &Key,
        unwanted: BTreeSet<String>,
        now: Timestamp,
    ) -> BTreeMap<String, Timestamp> {
        let known = self.pending_release.remove(node).unwrap_or_default();
        let since = |name: String| {
            let since = known.get(&name).copied().unwrap_or(now);
            (name, since)
        };
        let since: BTreeMap<String, Timestamp> = unwanted.into_iter().map(since).collect();
        if !since.is_empty() {
            self.pending_release.insert(node.clone(), since.clone());
        }
        since
    }

    /// Takes a network disk for a node, unless another node has it.
    pub(super) fn take(&mut self, disk: &str, node: &Key) -> bool {
        let taken = self.network.iter().any(|(other, disks)| other != node && disks.contains(disk));
        if !taken {
            self.network.entry(node.clone()).or_default().insert(disk.to_owned());
        }
        !taken
    }

    /// Records the network disks in a node's `volumesAttached`.
    pub(super) fn record_attached(&mut self, node: &Key, disks: &[String]) {
        match disks.is_empty() {
            true => self.network.remove(node),
            false => self.network.insert(node.clone(), disks.iter().cloned().collect()),
        };
    }

    /// Whether a node may have other network disks than these.
    pub(super) fn may_have_others(&self, node: &Key, disks: &[String]) -> bool {
        self.network.get(node).is_some_and(|known| known.iter().any(|disk| !disks.contains(disk)))
    }

    /// Forgets a deleted node.
    pub(super) fn forget_node(&mut self, node: &Key) {
        self.network.remove(node);
        self.pending_release.remove(node);
        self.waiting.remove(node);
    }

    /// Records the network disks that a node waits for.
    pub(super) fn set_waiting(&mut self, node: &Key, disks: BTreeSet<String>) {
        match disks.is_empty() {
            true => self.waiting.remove(node),
            false => self.waiting.insert(node.clone()),
        };
        // Disks it no longer waits for may be reported again.
        self.warned.retain(|disk, nodes| {
            if setpoint_volume::inline::is_on_network(disk.name()) && !disks.contains(disk.name()) {
                nodes.remove(node.name());
            }
            !nodes.is_empty()
        });
    }

    /// Lists nodes that wait for another node to release a network disk.
    pub(super) fn waiting(&self) -> Vec<Key> {
        self.waiting.iter().cloned().collect()
    }

    /// Whether a node's pods have not got a Multi-Attach event for the volume yet. Marks it as sent.
    pub(super) fn is_first_warning(&mut self, volume: &Key, node: &str) -> bool {
        self.warned.entry(volume.clone()).or_default().insert(node.into())
    }

    /// Whether an attachment fails with a new message. Records the message.
    pub(super) fn is_new_failure(&mut self, attachment: &Key, message: &str) -> bool {
        self.failures.insert(attachment.clone(), message.to_owned()).as_deref() != Some(message)
    }

    pub(super) fn detach(&mut self, attachment: &Key) {
        self.detaching.insert(attachment.clone());
    }

    pub(super) fn is_detaching(&self, attachment: &Key) -> bool {
        self.detaching.contains(attachment)
    }

    /// Forgets an attachment that is kept after all or is gone.
    pub(super) fn forget(&mut self, attachment: &Key) {
        self.detaching.remove(attachment);
        self.failures.remove(attachment);
    }
}
