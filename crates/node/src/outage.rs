//! Nodes that are made to fail: an annotation on the Node object says so.
//!
//! A node that fails renews no lease, and its pods are left as they are, until it recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use setpoint::Event;
use setpoint_placement::{Resources, Taint};

use crate::behaviour::annotation::FAILED;

/// The nodes that fail now. Cheap to clone; bounded by the number of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outages(Arc<Mutex<BTreeSet<Box<str>>>>);

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
    pub(crate) allocatable: Resources,
}

impl Outages {
    pub(crate) fn has(&self, node: &str) -> bool {
        let failing = self.0.lock();
        !failing.is_empty() && failing.contains(node)
    }

    /// Follows a change of a Node object; true if the node has just recovered.
    pub(crate) fn follow(&self, event: &Event) -> bool {
        let object = event.object();
        let gone = matches!(event, Event::Deleted { .. });
        let fails =
            |view: &NodeView| view.metadata.annotations.get(FAILED).is_some_and(|text| text == "true");
        let name = &*object.meta().name;
        match !gone && object.view::<NodeView>().is_ok_and(fails) {
            true => {
                self.0.lock().insert(name.into());
                false
            }
            false => self.0.lock().remove(name),
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
    fn a_node_fails_while_its_annotation_says_so() {
        let outages = Outages::default();
        assert!(!outages.follow(&changed(json!({}))) && !outages.has("node-0"));
        assert!(!outages.follow(&changed(json!({FAILED: "true"}))) && outages.has("node-0"));
        assert!(!outages.follow(&changed(json!({FAILED: "true"}))) && outages.has("node-0"));
        assert!(outages.follow(&changed(json!({FAILED: "false"}))) && !outages.has("node-0"));
    }
}
