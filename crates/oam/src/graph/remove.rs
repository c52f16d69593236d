//! Deletes objects of an instance in reverse order. Uses only the records on the objects and the instance: no
//! expression is evaluated, and the definition may be gone.

use serde_json::Value;
use setpoint::client::PropagationPolicy;

use super::instances::{Instances, Progress};
use super::label;
use super::parse::Graph;
use crate::apply::cluster::ClusterError;
use crate::apply::identity::Identity;

/// An object of an instance.
struct Child {
    identity: Identity,
    object: Value,
    order: i64,
    node: String,
}

impl Instances {
    /// Lists the objects of an instance, the last first.
    async fn children(&self, instance: &Value) -> Result<Vec<Child>, ClusterError> {
        let uid = instance["metadata"]["uid"].as_str().unwrap_or_default();
        let recorded = instance["metadata"]["annotations"][label::KINDS].as_str().unwrap_or_default();
        let mut children = Vec::new();
        for entry in recorded.split(',').filter(|entry| !entry.is_empty()) {
            let Some((kind, api_version)) = entry.split_once('|') else { continue };
            // The version in which objects were written may no longer be served. Without the kind there are no objects.
            let Some(kind) = self.cluster.any_version(api_version, kind).await? else { continue };
            let selector = format!("{}={uid}", label::INSTANCE_ID);
            for object in self.cluster.list(&kind, None, Some(selector)).await? {
                let order = object["metadata"]["annotations"][label::ORDER].as_str();
                let node =
                    object["metadata"]["labels"][label::NODE_ID].as_str().unwrap_or_default().to_owned();
                let order = order.and_then(|order| order.parse().ok()).unwrap_or_default();
                children.push(Child { identity: Identity::of(&kind, &object, ""), object, order, node });
            }
        }
        children.sort_by_key(|child| -child.order);
        Ok(children)
    }

    /// Deletes all objects in reverse order. Returns the remaining ones.
    pub(super) async fn remove_all(&self, instance: &Value) -> Result<Vec<String>, ClusterError> {
        let children = self.children(instance).await?;
        self.remove_last(&children).await
    }

    /// Deletes objects that the graph no longer describes, the last first: of excluded or removed resources, and
    /// removed items of collections. Waiting resources keep their objects. Returns the remaining ones.
    pub(super) async fn prune(
        &self,
        graph: &Graph,
        instance: &Value,
        progress: &Progress,
    ) -> Result<Vec<String>, ClusterError> {
        let mut children = self.children(instance).await?;
        children.retain(|child| !is_wanted(graph, progress, child));
        self.remove_last(&children).await
    }

    /// Deletes the objects at the last position. Returns all remaining ones.
    async fn remove_last(&self, children: &[Child]) -> Result<Vec<String>, ClusterError> {
        let last = children.first().map(|child| child.order);
        let mut left = Vec::new();
        for child in children {
            if Some(child.order) == last && child.object["metadata"]["deletionTimestamp"].is_null() {
                self.cluster.delete(&child.identity, &child.object, PropagationPolicy::Background).await?;
            }
            left.push(child.identity.to_string());
        }
        Ok(left)
    }
}

fn is_wanted(graph: &Graph, progress: &Progress, child: &Child) -> bool {
    let Some(resource) = graph.resources.iter().find(|resource| resource.id == child.node) else {
        return false;
    };
    if progress.excluded.contains(&resource.id) {
        return false;
    }
    let uid = child.object["metadata"]["uid"].as_str().unwrap_or_default();
    progress.made.get(&resource.id).is_none_or(|made| made.contains(uid))
}
