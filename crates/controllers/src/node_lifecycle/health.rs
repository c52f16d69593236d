//! Whether a node has reported recently. Pure.

use jiff::Timestamp;
use setpoint::Cached;

use super::config::NodeLifecycle;
use super::view::{Condition, Node};
use crate::workload::condition::whole_seconds;

/// Conditions that become Unknown when a node stops reporting.
const REPORTED_BY_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last known health of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    /// When the last change was observed.
    pub(super) last_heartbeat: Timestamp,
    /// The last observed Ready condition.
    ready: Option<Condition>,
    /// The last observed renew time of the lease.
    renewed: Option<Timestamp>,
}

/// The result of checking a node.
#[derive(Debug)]
pub(super) struct HealthCheck {
    pub(super) health: Health,
    /// The Ready status before and after the check. `before` is `None` if the node never reported.
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    /// The conditions to write if the node has gone silent.
    pub(super) conditions: Option<Vec<Condition>>,
}

/// Checks a node. `known` is the result of the last check; the first check counts as having heard from the node.
pub(super) fn check_health(
    node: &Cached<Node>,
    renewed: Option<Timestamp>,
    known: Option<&Health>,
    config: &NodeLifecycle,
    now: Timestamp,
) -> HealthCheck {
    let ready = node.condition("Ready").cloned();
    let created = node.meta().creation_timestamp.unwrap_or(now);
    let mut health = observe(ready.as_ref(), known, created, now);
    if renewed.is_some() && renewed > known.and_then(|known| known.renewed) {
        health.last_heartbeat = now;
    }
    health.renewed = renewed.max(health.renewed);

    let grace = config.grace(ready.is_some());
    let before = ready.as_ref().map(|ready| ready.status.clone());
    let silent = now.duration_since(health.last_heartbeat) > grace;
    if !silent || before.as_deref() == Some("Unknown") {
        return HealthCheck { health, after: before.clone(), before, conditions: None };
    }
    let conditions = unknown_conditions(&node.status.conditions, created, now);
    health.ready = conditions.iter().find(|condition| condition.r#type == "Ready").cloned();
    HealthCheck { health, before, after: Some("Unknown".to_owned()), conditions: Some(conditions) }
}

/// Applies the node's reported status.
fn observe(ready: Option<&Condition>, known: Option<&Health>, created: Timestamp, now: Timestamp) -> Health {
    let fresh = |last_heartbeat| Health {
        last_heartbeat,
        ready: ready.cloned(),
        renewed: known.and_then(|known| known.renewed),
    };
    match (known, ready) {
        (None, None) => fresh(created),
        (None, Some(_)) => fresh(now),
        (Some(known), None) => Health { ready: None, ..known.clone() },
        (Some(known), Some(ready)) => match &known.ready {
            Some(before) if before.last_heartbeat_time == ready.last_heartbeat_time => {
                Health { ready: Some(ready.clone()), ..known.clone() }
            }
            _ => fresh(now),
        },
    }
}

/// Returns the conditions of a silent node, set to Unknown.
fn unknown_conditions(conditions: &[Condition], created: Timestamp, now: Timestamp) -> Vec<Condition> {
    let now = Some(whole_seconds(now));
    let mut conditions = conditions.to_vec();
    for reported in REPORTED_BY_KUBELET {
        match conditions.iter_mut().find(|condition| condition.r#type == reported) {
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = "NodeStatusUnknown".to_owned();
                condition.message = "Kubelet stopped posting node status.".to_owned();
                condition.last_transition_time = now;
            }
            Some(_) => {}
            None => conditions.push(Condition {
                r#type: reported.to_owned(),
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
