//! The known state of all nodes, shared by the parts of the controller.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::{Cached, Instant};

use super::config::NodeLifecycle;
use super::health::{Health, HealthCheck};
use super::view::Node;
use super::zones::{Census, OutageChange, Zones};

/// At most one entry per node, plus the zones' state.
#[derive(Default)]
pub(super) struct KnownNodes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<Box<str>, Entry>,
    zones: Zones,
    /// Whether nodes have been listed before.
    listed: bool,
}

struct Entry {
    uid: Box<str>,
    /// Whether the node existed when the controller started.
    existed_at_startup: bool,
    health: Option<Health>,
    /// Its Ready status.
    ready: Option<String>,
    /// Whether marking some of its pods as not ready failed.
    unmarked: bool,
}

/// Nodes added and removed since the last update, with their uids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeChanges {
    pub(super) added: Vec<(Box<str>, Box<str>)>,
    pub(super) removed: Vec<(Box<str>, Box<str>)>,
}

impl KnownNodes {
    pub(super) fn new(config: NodeLifecycle) -> Self {
        Self { state: Mutex::new(State { zones: Zones::new(config), ..State::default() }) }
    }

    /// Updates the set of nodes. Returns those added and removed.
    pub(super) fn update(&self, nodes: &[Cached<Node>]) -> NodeChanges {
        let mut state = self.state.lock();
        let mut changes = NodeChanges::default();
        let existed_at_startup = !std::mem::replace(&mut state.listed, true);
        let present: BTreeSet<&str> = nodes.iter().map(|node| node.key().name()).collect();
        state.nodes.retain(|name, entry| {
            let exists = present.contains(&**name);
            if !exists {
                changes.removed.push((name.clone(), entry.uid.clone()));
            }
            exists
        });
        for node in nodes {
            let (name, uid) = (node.key().name(), &node.meta().uid);
            if !state.nodes.contains_key(name) {
                let entry = Entry {
                    uid: uid.clone(),
                    existed_at_startup,
                    health: None,
                    ready: None,
                    unmarked: false,
                };
                state.nodes.insert(name.into(), entry);
                changes.added.push((name.into(), uid.clone()));
            }
        }
        changes
    }

    pub(super) fn health(&self, node: &str) -> Option<Health> {
        self.state.lock().nodes.get(node)?.health.clone()
    }

    pub(super) fn record_check(&self, node: &str, checked: &HealthCheck) {
        if let Some(entry) = self.state.lock().nodes.get_mut(node) {
            entry.health = Some(checked.health.clone());
            entry.ready = checked.after.clone();
        }
    }

    /// Whether the node is known to be not ready.
    pub(super) fn is_not_ready(&self, node: &str) -> bool {
        let state = self.state.lock();
        state.nodes.get(node).and_then(|entry| entry.ready.as_deref()).is_some_and(|ready| ready != "True")
    }

    /// Whether the node existed at startup and has not been checked yet.
    pub(super) fn existed_at_startup(&self, node: &str) -> bool {
        let state = self.state.lock();
        state.nodes.get(node).is_some_and(|entry| entry.existed_at_startup && entry.health.is_none())
    }

    /// Records whether pods of the node still have to be marked.
    pub(super) fn set_unmarked(&self, node: &str, unmarked: bool) {
        if let Some(entry) = self.state.lock().nodes.get_mut(node) {
            entry.unmarked = unmarked;
        }
    }

    pub(super) fn is_unmarked(&self, node: &str) -> bool {
        self.state.lock().nodes.get(node).is_some_and(|entry| entry.unmarked)
    }

    /// Applies the census. When nodes become ready again after a total outage, all grace periods restart.
    pub(super) fn assess(
        &self,
        census: &BTreeMap<String, Census>,
        now: Timestamp,
        instant: Instant,
    ) -> OutageChange {
        let mut state = self.state.lock();
        let change = state.zones.assess(census, instant);
        if change == OutageChange::Ended {
            for health in state.nodes.values_mut().filter_map(|entry| entry.health.as_mut()) {
                health.last_heartbeat = now;
            }
        }
        change
    }

    /// Gives access to the zones.
    pub(super) fn zones<T>(&self, work: impl FnOnce(&mut Zones) -> T) -> T {
        work(&mut self.state.lock().zones)
    }
}
