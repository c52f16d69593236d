//! Nodes that are made to fail: an annotation on the Node object says so.
//!
//! A node that fails renews no lease, and its pods are left as they are, until it recovers. Another annotation makes a
//! node short of something (pressure.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use setpoint::Event;
use setpoint_placement::{Resources, Taint};

use crate::behaviour::annotation::{FAILED, PRESSURE};
use crate::offer::change;
use crate::pressure::{self, Pressure};

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
    /// What nodes are short of.
    short_of: BTreeMap<Box<str>, Vec<Pressure>>,
    /// Those whose conditions do not show that yet.
    unsaid: BTreeSet<Box<str>>,
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

    fn short_of(&self) -> Vec<Pressure> {
        Pressure::named(self.metadata.annotations.get(PRESSURE))
    }

    /// The conditions that there are, each with its status. Those of a node that has none yet are not known.
    fn shown(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.status.conditions.iter().map(|one| (&*one.r#type, &*one.status))
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

    /// What the node acts upon being short of: first it says so, so that nobody sends it the pods that it sends away.
    pub(crate) fn pressure_told(&self, node: &str) -> Vec<Pressure> {
        if self.has_to_say(node) { Vec::new() } else { self.pressure(node) }
    }

    /// What the node is short of.
    pub(crate) fn pressure(&self, node: &str) -> Vec<Pressure> {
        let known = self.0.lock();
        if known.short_of.is_empty() {
            Vec::new()
        } else {
            known.short_of.get(node).cloned().unwrap_or_default()
        }
    }

    /// Whether the node has yet to say what it is short of.
    pub(crate) fn has_to_say(&self, node: &str) -> bool {
        let known = self.0.lock();
        !known.unsaid.is_empty() && known.unsaid.contains(node)
    }

    /// Follows a change of a Node object; true if its pods have to be looked at: it has just recovered, or is short
    /// of something.
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
        let is_pressed = known.follow_pressure(name, node);
        match node.is_some_and(NodeView::fails) {
            true => {
                known.failing.insert(name.into());
                false
            }
            false => known.failing.remove(name) || is_pressed,
        }
    }
}

impl Known {
    /// True if the node has just said that it is short of something.
    fn follow_pressure(&mut self, name: &str, node: Option<&NodeView>) -> bool {
        let short_of = node.map_or_else(Vec::new, NodeView::short_of);
        let is_short = !short_of.is_empty();
        let is_unsaid = node.is_some_and(|node| !pressure::unsaid(&short_of, node.shown()).is_empty());
        match is_short {
            true => _ = self.short_of.insert(name.into(), short_of),
            false => _ = self.short_of.remove(name),
        }
        match is_unsaid {
            true => {
                self.unsaid.insert(name.into());
                false
            }
            false => self.unsaid.remove(name) && is_short,
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
