//! Tracks nodes that pods are bound to and that are missing from the cache. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use setpoint::Instant;

/// How long a node must be missing before the API server is asked: the cache may be stale, or the node may be about to
/// register.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Missing nodes by when each was first missing. At most one per pod.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    missed: BTreeMap<Box<str>, Instant>,
}

impl Quarantine {
    /// Adds nodes that are missing now, and returns those still missing at the end of their quarantine. Their
    /// quarantine starts over after that.
    pub(super) fn pass(&mut self, missing: &BTreeSet<&str>, now: Instant) -> Vec<Box<str>> {
        for &node in missing {
            if !self.missed.contains_key(node) {
                self.missed.insert(node.into(), now);
            }
        }
        let over = |since: &Instant| now.saturating_duration_since(*since) >= QUARANTINE;
        let (due, waiting): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.missed).into_iter().partition(|(_, since)| over(since));
        self.missed = waiting;
        due.into_keys().filter(|node| missing.contains(&**node)).collect()
    }
}
