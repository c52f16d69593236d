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
    told: BTreeMap<Key, BTreeSet<Box<str>>>,
    /// The last failure of an attachment that was told.
    failures: BTreeMap<Key, String>,
    /// The attachments that are about to be deleted: nodes are told so before.
    detaching: BTreeSet<Key>,
}

impl Memory {
    /// Forgets all about a volume except on these nodes.
    pub(super) fn keep(&mut self, volume: &Key, leaving: &BTreeSet<Box<str>>, waiting: &BTreeSet<Box<str>>) {
        if let Some(nodes) = self.leaving.get_mut(volume) {
            nodes.retain(|node, _| leaving.contains(node));
        }
        if let Some(nodes) = self.told.get_mut(volume) {
            nodes.retain(|node| waiting.contains(node));
        }
        self.leaving.retain(|_, nodes| !nodes.is_empty());
        self.told.retain(|_, nodes| !nodes.is_empty());
    }

    /// Since when a volume is to leave a node: since now, if it was not before.
    pub(super) fn leaving_since(&mut self, volume: &Key, node: &str, now: Timestamp) -> Timestamp {
        *self.leaving.entry(volume.clone()).or_default().entry(node.into()).or_insert(now)
    }

    /// Whether a node's pods have yet to be told that a volume is somebody else's.
    pub(super) fn is_news(&mut self, volume: &Key, node: &str) -> bool {
        self.told.entry(volume.clone()).or_default().insert(node.into())
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
