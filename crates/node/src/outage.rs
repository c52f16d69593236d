//! Nodes that are made to fail, by an annotation on the Node object.
//!
//! A failing node renews no lease and leaves its pods unchanged until it recovers. Another annotation gives a node
//! pressure conditions (pressure.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use setpoint::Event;
use setpoint_placement::{Resources, Taint};
use tokio::sync::Notify;

use crate::behaviour::annotation::{FAILED, PRESSURE};
use crate::offer::change;
use crate::pressure::{self, Pressure};

/// The state of nodes according to their objects. Cheap to clone; bounded by the number of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outages {
    known: Arc<Mutex<Known>>,
    /// Wakes those that wait for a failure.
    failed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Known {
    failing: BTreeSet<Box<str>>,
    /// Nodes that are not ready according to their object, whether or not they are failing.
    thought_lost: BTreeSet<Box<str>>,
    /// Pending writes of allocatable resources.
    offers: BTreeMap<Box<str>, Value>,
    /// The pressures of nodes.
    short_of: BTreeMap<Box<str>, Vec<Pressure>>,
    /// Nodes whose conditions do not show their pressures yet.
    unreported: BTreeSet<Box<str>>,
}

/// Typed view of a Node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeView {
    metadata: Annotated,
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

setpoint::view!(NodeView of k8s_openapi::api::core::v1::Node);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub(crate) taints: Vec<Taint>,
    #[serde(rename = "podCIDRs")]
    pub(crate) pod_cidrs: Vec<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    capacity: Resources,
    pub(crate) allocatable: Resources,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: Box<str>,
    status: Box<str>,
}

impl NodeView {
    fn fails(&self) -> bool {
        self.metadata.annotations.get(FAILED).is_some_and(|text| text == "true")
    }

    fn short_of(&self) -> Vec<Pressure> {
        Pressure::named(self.metadata.annotations.get(PRESSURE))
    }

    /// Lists the conditions with their status. Empty for a node without conditions.
    fn shown(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.status.conditions.iter().map(|one| (&*one.r#type, &*one.status))
    }

    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|one| &*one.r#type == "Ready" && &*one.status == "True")
    }
}

impl Outages {
    pub(crate) fn has(&self, node: &str) -> bool {
        let known = self.known.lock();
        !known.failing.is_empty() && known.failing.contains(node)
    }

    /// Whether the node is not ready according to its object.
    pub(crate) fn is_thought_lost(&self, node: &str) -> bool {
        let known = self.known.lock();
        !known.thought_lost.is_empty() && known.thought_lost.contains(node)
    }

    /// Returns the pending write of the node's allocatable resources.
    pub(crate) fn offer(&self, node: &str) -> Option<Value> {
        let known = self.known.lock();
        known.offers.get(node).cloned()
    }

    /// Returns the pressures the node acts on. The conditions are written first, so that pods it evicts are not
    /// scheduled back.
    pub(crate) fn pressure_told(&self, node: &str) -> Vec<Pressure> {
        if self.has_to_say(node) { Vec::new() } else { self.pressure(node) }
    }

    /// Returns the node's pressures.
    pub(crate) fn pressure(&self, node: &str) -> Vec<Pressure> {
        let known = self.known.lock();
        if known.short_of.is_empty() {
            Vec::new()
        } else {
            known.short_of.get(node).cloned().unwrap_or_default()
        }
    }

    /// Whether the node's pressure conditions still have to be written.
    pub(crate) fn has_to_say(&self, node: &str) -> bool {
        let known = self.known.lock();
        !known.unreported.is_empty() && known.unreported.contains(node)
    }

    /// Applies a Node event. Returns true if its pods must be reconciled: the node has just recovered, or reported
    /// pressure.
    pub(crate) fn follow(&self, event: &Event) -> bool {
        let object = event.object();
        let name = &*object.meta().name;
        let node = object.view::<NodeView>().ok().filter(|_| !matches!(event, Event::Deleted { .. }));
        let mut known = self.known.lock();
        match node.is_some_and(NodeView::is_ready) {
            true => known.thought_lost.remove(name),
            false => known.thought_lost.insert(name.into()),
        };
        match node.and_then(|node| change(&node.status.capacity, &node.status.allocatable)) {
            Some(change) => known.offers.insert(name.into(), change),
            None => known.offers.remove(name),
        };
        let is_pressed = known.follow_pressure(name, node);
        match node.is_some_and(NodeView::fails) {
            true => {
                known.failing.insert(name.into());
                self.failed.notify_waiters();
                false
            }
            false => known.failing.remove(name) || is_pressed,
        }
    }

    /// Waits until a node fails.
    pub(crate) async fn wait_for_failure(&self, node: &str) {
        loop {
            let mut failed = pin!(self.failed.notified());
            // A failure between the check and the wait is not missed.
            failed.as_mut().enable();
            if self.has(node) {
                return;
            }
            failed.await;
        }
    }
}

impl Known {
    /// Returns true if the node has just reported pressure.
    fn follow_pressure(&mut self, name: &str, node: Option<&NodeView>) -> bool {
        let short_of = node.map_or_else(Vec::new, NodeView::short_of);
        let is_short = !short_of.is_empty();
        let is_unreported =
            node.is_some_and(|node| !pressure::unreported(&short_of, node.shown()).is_empty());
        match is_short {
            true => _ = self.short_of.insert(name.into(), short_of),
            false => _ = self.short_of.remove(name),
        }
        match is_unreported {
            true => {
                self.unreported.insert(name.into());
                false
            }
            false => self.unreported.remove(name) && is_short,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint::Object;

    use super::*;

    fn changed(annotations: serde_json::Value) -> Event {
        let node = json!({"metadata": {"name": "node-0", "annotations": annotations}});
        let object = Object::from_json(node.to_string().into()).expect("a node");
        Event::Updated { old: object.clone(), new: object }
    }

    #[test]
    fn a_node_is_unhealthy_unless_its_object_is_ready() {
        let outages = Outages::default();
        let follow = |ready: &str| {
            let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
            let node = json!({"metadata": {"name": "node-0"}, "status": status});
            let object = Object::from_json(node.to_string().into()).expect("a node");
            outages.follow(&Event::Added { object, initial: false });
            outages.is_thought_lost("node-0")
        };
        assert!(!outages.is_thought_lost("node-0"), "nothing is known of it yet");
        assert!(!follow("True") && follow("Unknown") && follow("False") && !follow("True"));
    }

    #[test]
    fn a_node_fails_while_it_is_annotated() {
        let outages = Outages::default();
        assert!(!outages.follow(&changed(json!({}))) && !outages.has("node-0"));
        assert!(!outages.follow(&changed(json!({FAILED: "true"}))) && outages.has("node-0"));
        assert!(!outages.follow(&changed(json!({FAILED: "true"}))) && outages.has("node-0"));
        assert!(outages.follow(&changed(json!({FAILED: "false"}))) && !outages.has("node-0"));
    }
}
