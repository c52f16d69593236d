//! The taints for a node's conditions. Pure.

use jiff::Timestamp;
use serde_json::Map;

use super::view::{Condition, Node, Taint};
use crate::workload::condition::whole_seconds;

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
const CORDONED: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Condition, status, and the taint key for it.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Why pods are evicted from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionReason {
    NotReady,
    Unreachable,
}

impl EvictionReason {
    /// Returns the reason for a Ready status.
    pub(super) fn for_status(status: &str) -> Option<Self> {
        match status {
            "False" => Some(Self::NotReady),
            "Unknown" => Some(Self::Unreachable),
            _ => None,
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::NotReady => NOT_READY,
            Self::Unreachable => UNREACHABLE,
        }
    }

    /// Whether the node has the taint.
    pub(super) fn is_on(self, node: &Node) -> bool {
        node.spec.taints.iter().any(|taint| taint.is(self.key(), NO_EXECUTE))
    }
}

/// Whether the node has a NoExecute taint for either reason.
pub(super) fn has_eviction_taint(node: &Node) -> bool {
    [EvictionReason::NotReady, EvictionReason::Unreachable].iter().any(|reason| reason.is_on(node))
}

/// Returns the node's taints with the NoExecute taint for this reason, or without one. `None` if nothing changes.
pub(super) fn with_eviction_taint(
    node: &Node,
    why: Option<EvictionReason>,
    now: Timestamp,
) -> Option<Vec<Taint>> {
    let wanted = why.map(EvictionReason::key);
    let is_eviction_taint =
        |taint: &Taint| taint.effect == NO_EXECUTE && (taint.key == NOT_READY || taint.key == UNREACHABLE);
    let is_kept = |taint: &&Taint| !is_eviction_taint(taint) || wanted == Some(taint.key.as_str());
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(is_kept).cloned().collect();
    if let Some(key) = wanted
        && !taints.iter().any(|taint| taint.is(key, NO_EXECUTE))
    {
        taints.push(Taint::new(key, NO_EXECUTE, now));
    }
    (taints != node.spec.taints).then_some(taints)
}

/// Returns the node's taints with those for its conditions. `None` if nothing changes.
pub(super) fn by_conditions(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let expected_keys: Vec<&str> = expected_keys(node);
    let is_kept = |taint: &&Taint| !is_managed(taint) || expected_keys.contains(&taint.key.as_str());
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(is_kept).cloned().collect();
    for key in expected_keys {
        if !taints.iter().any(|taint| taint.is(key, NO_SCHEDULE)) {
            taints.push(Taint::new(key, NO_SCHEDULE, now));
        }
    }
    (taints != node.spec.taints).then_some(taints)
}

fn expected_keys(node: &Node) -> Vec<&'static str> {
    let of = |condition: &Condition| {
        let row = BY_CONDITION.iter().find(|row| row.0 == condition.r#type && row.1 == condition.status);
        row.map(|row| row.2)
    };
    let cordoned = node.spec.unschedulable.then_some(CORDONED);
    node.status.conditions.iter().filter_map(of).chain(cordoned).collect()
}

/// Whether this controller manages the taint: it is for a condition or a cordon.
fn is_managed(taint: &Taint) -> bool {
    let known = taint.key == CORDONED || BY_CONDITION.iter().any(|row| row.2 == taint.key);
    taint.effect == NO_SCHEDULE && known
}

impl Taint {
    fn new(key: &str, effect: &str, now: Timestamp) -> Self {
        Self {
            key: key.into(),
            effect: effect.into(),
            time_added: Some(whole_seconds(now)),
            rest: Map::new(),
        }
    }

    fn is(&self, key: &str, effect: &str) -> bool {
        self.key == key && self.effect == effect
    }
}
