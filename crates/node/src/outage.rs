//! Nodes that are made to fail: an annotation on the Node object says so.
//!
//! A node that fails renews no lease, and its pods are left as they are, until it recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use setpoint::Event;
use setpoint_placement::{Resources, Taint};

use crate::behaviour::annotation::FAILED;
use crate::offer::change;

/// How nodes are, as their objects have it. Cheap to clone; bounded by the number of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outages(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    failing: BTreeSet<Box<str>>,
    /// Not ready as far as anybody knows, whether they fail or not.
    thought_lost: BTreeSet<Box<str>>,
    /// What nodes have yet to write about what they offer.
    offers: BTreeMap<Box<str>, Value>,
}

/// What is read of a Node object.
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

    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|one| &*one.r#type == "Ready" && &*one.status == "True")
    }
}

impl Outages {
    pub(crate) fn has(&self, node: &str) -> bool {
        let known = self.0.lock();
        !known.failing.is_empty() && known.failing.contains(node)
    }

    /// Whether the node is not ready as far as anybody knows.
    pub(crate) fn is_thought_lost(&self, node: &str) -> bool {
        let known = self.0.lock();
        !known.thought_lost.is_empty() && known.thought_lost.contains(node)
    }

    /// What the node has to write about what it offers.
    pub(crate) fn offer(&self, node: &str) -> Option<Value> {
        let known = self.0.lock();
        known.offers.get(node).cloned()
    }

    /// Follows a change of a Node object; true if the node has just recovered.
    pub(crate) fn follow(&self, event: &Event) -> bool {
        let object = event.object();
        let name = &*object.meta().name;
        let node = object.view::<NodeView>().ok().filter(|_| !matches!(event, Event::Deleted { .. }));
        let mut known = self.0.lock();
        match node.is_some_and(NodeView::is_ready) {
            true => known.thought_lost.remove(name),
            false => known.thought_lost.insert(name.into()),
        };
        match node.and_then(|node| change(&node.status.capacity, &node.status.allocatable)) {
            Some(change) => known.offers.insert(name.into(), change),
            None => known.offers.remove(name),
        };
        match node.is_some_and(NodeView::fails) {
            true => {
                known.failing.insert(name.into());
                false
            }
            false => known.failing.remove(name),
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
    fn a_node_is_thought_lost_unless_its_object_says_that_it_is_ready() {
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
    fn a_node_fails_while_its_annotation_says_so() {
        let outages = Outages::default();
        assert!(!outages.follow(&changed(json!({}))) && !outages.has("node-0"));
        assert!(!outages.follow(&changed(json!({FAILED: "true"}))) && outages.has("node-0"));
        assert!(!outages.follow(&changed(json!({FAILED: "true"}))) && outages.has("node-0"));
        assert!(outages.follow(&changed(json!({FAILED: "false"}))) && !outages.has("node-0"));
    }
}
