//! Whether a node has been heard of lately. Pure.

use jiff::Timestamp;
use setpoint::Cached;

use super::config::NodeLifecycle;
use super::view::{Condition, Node};
use crate::workload::condition::whole_seconds;

/// What nobody can tell of a node that is silent.
const TOLD_BY_NODES: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What was last heard of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    /// When something new was last heard.
    pub(super) heard: Timestamp,
    /// The readiness that was last seen.
    ready: Option<Condition>,
    /// When the node had renewed its lease, at the last look.
    renewed: Option<Timestamp>,
}

/// What a look at a node found.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) health: Health,
    /// The status of readiness before and after the look; a node that never told has none before.
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    /// The conditions that the node should be given, if it has fallen silent.
    pub(super) conditions: Option<Vec<Condition>>,
}

/// Looks at a node. `known` is what the last look found; the first look counts as having heard of it.
pub(super) fn look(
    node: &Cached<Node>,
    renewed: Option<Timestamp>,
    known: Option<&Health>,
    patience: &NodeLifecycle,
    now: Timestamp,
) -> Finding {
    let ready = node.condition("Ready").cloned();
    let created = node.meta().creation_timestamp.unwrap_or(now);
    let mut health = listen(ready.as_ref(), known, created, now);
    if renewed.is_some() && renewed > known.and_then(|known| known.renewed) {
        health.heard = now;
    }
    health.renewed = renewed.max(health.renewed);

    let grace = patience.grace(ready.is_some());
    let before = ready.as_ref().map(|ready| ready.status.clone());
    let silent = now.duration_since(health.heard) > grace;
    if !silent || before.as_deref() == Some("Unknown") {
        return Finding { health, after: before.clone(), before, conditions: None };
    }
    let conditions = unknown(&node.status.conditions, created, now);
    health.ready = conditions.iter().find(|condition| condition.r#type == "Ready").cloned();
    Finding { health, before, after: Some("Unknown".to_owned()), conditions: Some(conditions) }
}

/// Takes in what the node's status says.
fn listen(ready: Option<&Condition>, known: Option<&Health>, created: Timestamp, now: Timestamp) -> Health {
    let anew =
        |heard| Health { heard, ready: ready.cloned(), renewed: known.and_then(|known| known.renewed) };
    match (known, ready) {
        (None, None) => anew(created),
        (None, Some(_)) => anew(now),
        (Some(known), None) => Health { ready: None, ..known.clone() },
        (Some(known), Some(ready)) => match &known.ready {
            Some(before) if before.last_heartbeat_time == ready.last_heartbeat_time => {
                Health { ready: Some(ready.clone()), ..known.clone() }
            }
            _ => anew(now),
        },
    }
}

/// The conditions of a node that is silent: what it used to tell, nobody knows now.
fn unknown(conditions: &[Condition], created: Timestamp, now: Timestamp) -> Vec<Condition> {
    let now = Some(whole_seconds(now));
    let mut conditions = conditions.to_vec();
    for told in TOLD_BY_NODES {
        match conditions.iter_mut().find(|condition| condition.r#type == told) {
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = "NodeStatusUnknown".to_owned();
                condition.message = "Kubelet stopped posting node status.".to_owned();
                condition.last_transition_time = now;
            }
            Some(_) => {}
            None => conditions.push(Condition {
                r#type: told.to_owned(),
                status: "Unknown".to_owned(),
                reason: "NodeStatusNeverUpdated".to_owned(),
                message: "Kubelet never posted node status.".to_owned(),
                last_heartbeat_time: Some(created),
                last_transition_time: now,
            }),
        }
    }
    conditions
}
