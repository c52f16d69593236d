//! The capacity of each zone, and the number of endpoints of each Service hinted to it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use setpoint::{Cached, Key};

use super::hints::{Counts, Shares, is_overloaded};
use super::node::{self, Node};
use crate::discovery::address::Family;

/// At most one entry per Service with hints, and one per zone.
#[derive(Default)]
pub(super) struct Topology {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shares: Option<Shares>,
    hinted: BTreeMap<Key, BTreeMap<Family, Counts>>,
}

impl Topology {
    /// Returns the zones' shares. `None` if they are unknown or there are fewer than two zones.
    pub(super) fn shares(&self) -> Option<Shares> {
        self.state.lock().shares.clone()
    }

    pub(super) fn has_hints(&self, service: &Key) -> bool {
        self.state.lock().hinted.contains_key(service)
    }

    pub(super) fn hinted(&self, service: &Key, family: Family, counts: Counts) {
        self.state.lock().hinted.entry(service.clone()).or_default().insert(family, counts);
    }

    pub(super) fn not_hinted(&self, service: &Key, family: Family) {
        let mut state = self.state.lock();
        if let Some(families) = state.hinted.get_mut(service) {
            families.remove(&family);
            if families.is_empty() {
                state.hinted.remove(service);
            }
        }
    }

    pub(super) fn forget(&self, service: &Key) {
        self.state.lock().hinted.remove(service);
    }

    /// Updates the nodes, and returns the Services whose hints no longer fit.
    pub(super) fn set_nodes(&self, nodes: &[Cached<Node>]) -> Vec<Key> {
        let mut state = self.state.lock();
        state.shares = shares(nodes);
        let overloaded = |families: &BTreeMap<Family, Counts>| {
            families.values().any(|counts| is_overloaded(counts, state.shares.as_ref()))
        };
        state.hinted.iter().filter(|(_, families)| overloaded(families)).map(|(key, _)| key.clone()).collect()
    }
}

/// Computes each zone's share of the CPU of all ready worker nodes. `None` if any of them has no zone or no CPU
/// capacity.
fn shares(nodes: &[Cached<Node>]) -> Option<Shares> {
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node::is_for_users(node.meta()) && node.ready) {
        let zone = node::zone(node.meta()).filter(|_| node.cpu > 0)?;
        *by_zone.entry(zone.to_owned()).or_default() += node.cpu;
    }
    let total: i64 = by_zone.values().sum();
    let share = |(zone, cpu): (String, i64)| (zone, cpu as f64 / total as f64);
    (by_zone.len() >= 2).then(|| by_zone.into_iter().map(share).collect())
}
