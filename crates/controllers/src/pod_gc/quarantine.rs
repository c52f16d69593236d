//! Nodes that pods are bound to and that the cache does not show. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use setpoint::Instant;

/// How long a node may be missed before the API server is asked for it: the cache may lag, or the
/// node may be about to register.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The missed nodes, by when each was first missed. At most as many as there are pods.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    missed: BTreeMap<Box<str>, Instant>,
}

impl Quarantine {
    /// Takes in nodes that are missed now, and gives out those that are still missed at the end of
    /// their quarantine. Whoever is missed after that starts anew.
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
