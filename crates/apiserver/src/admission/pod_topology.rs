//! Copies the node's zone and region labels to its pods, if the feature is enabled.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata;
use crate::status::Status;

pub struct PodTopologyLabels;

pub(crate) const FEATURE: &str = "PodTopologyLabelsAdmission";

const COPIED: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

impl Plugin for PodTopologyLabels {
    fn handles(&self, review: &Review<'_>) -> bool {
        let kind = &review.served.kind;
        review.operation == Operation::Create
            && kind.group.is_empty()
            && kind.plural == "pods"
            && matches!(review.subresource, None | Some(Subresource::Binding))
            && review.server.features.has(FEATURE)
    }

    /// Copies the labels; the object is a pod with a node name, or a binding.
    async fn mutate(&self, review: &Review<'_>, object: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        let target = object.at("target");
        let node = match review.subresource {
            Some(_) if target.text("kind") != "Node" => "",
            Some(_) => target.text("name"),
            None => object.at("spec").text("nodeName"),
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = review.find("", "nodes", node).await? else { return Ok(()) };
        let labels = metadata::of(&node).at("labels");
        for label in COPIED.into_iter().filter(|label| labels.has(label)) {
            object.object_mut("metadata").object_mut("labels").set(label, labels.text(label));
        }
        Ok(())
    }
}
