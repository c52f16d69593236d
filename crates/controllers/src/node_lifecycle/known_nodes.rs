//! The known state of all nodes, shared by the parts of the controller.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::{Cached, Instant};

use super::config::NodeLifecycle;
use super::health::{Finding, Health};
use super::view::Node;
use super::zones::{Census, Turn, Zones};

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
    called: bool,
}

struct Entry {
    uid: Box<str>,
    /// Whether the node existed when the controller started.
    from_before: bool,
    health: Option<Health>,
    /// Its Ready status.
    ready: Option<String>,
    /// Whether marking some of its pods as not ready failed.
    unmarked: bool,
}

/// Nodes added and removed since the last update, with their uids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Movement {
    pub(super) come: Vec<(Box<str>, Box<str>)>,
    pub(super) gone: Vec<(Box<str>, Box<str>)>,
}

impl KnownNodes {
    pub(super) fn new(patience: NodeLifecycle) -> Self {
        Self { state: Mutex::new(State { zones: Zones::new(patience), ..State::default() }) }
    }

    /// Updates the set of nodes. Returns those added and removed.
    pub(super) fn update(&self, nodes: &[Cached<Node>]) -> Movement {
        let mut state = self.state.lock();
        let mut movement = Movement::default();
        let from_before = !std::mem::replace(&mut state.called, true);
        let present: BTreeSet<&str> = nodes.iter().map(|node| node.key().name()).collect();
        state.nodes.retain(|name, entry| {
            let here = present.contains(&**name);
            if !here {
                movement.gone.push((name.clone(), entry.uid.clone()));
            }
            here
        });
        for node in nodes {
            let (name, uid) = (node.key().name(), &node.meta().uid);
            if !state.nodes.contains_key(name) {
                let entry =
                    Entry { uid: uid.clone(), from_before, health: None, ready: None, unmarked: false };
                state.nodes.insert(name.into(), entry);
                movement.come.push((name.into(), uid.clone()));
            }
        }
        movement
    }

    pub(super) fn health(&self, node: &str) -> Option<Health> {
        self.state.lock().nodes.get(node)?.health.clone()
    }

    pub(super) fn found(&self, node: &str, finding: &Finding) {
        if let Some(entry) = self.state.lock().nodes.get_mut(node) {
            entry.health = Some(finding.health.clone());
            entry.ready = finding.after.clone();
        }
    }

    /// Whether the node is known to be not ready.
    pub(super) fn is_not_ready(&self, node: &str) -> bool {
        let state = self.state.lock();
        state.nodes.get(node).and_then(|entry| entry.ready.as_deref()).is_some_and(|ready| ready != "True")
    }

    /// Whether the node existed at startup and has not been checked yet.
    pub(super) fn is_from_before(&self, node: &str) -> bool {
        let state = self.state.lock();
        state.nodes.get(node).is_some_and(|entry| entry.from_before && entry.health.is_none())
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
    pub(super) fn assess(&self, census: &BTreeMap<String, Census>, now: Timestamp, instant: Instant) -> Turn {
        let mut state = self.state.lock();
        let turn = state.zones.assess(census, instant);
        if turn == Turn::Seeing {
            for health in state.nodes.values_mut().filter_map(|entry| entry.health.as_mut()) {
                health.heard = now;
            }
        }
        turn
    }

    /// Gives access to the zones.
    pub(super) fn zones<T>(&self, work: impl FnOnce(&mut Zones) -> T) -> T {
        work(&mut self.state.lock().zones)
    }
}
