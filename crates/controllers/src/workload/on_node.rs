//! From a node to the pods on it.

use std::sync::Arc;

use setpoint::object::DecodeError;
use setpoint::{Cached, Informer, Lister, Object, View};

use super::pod::Pod;

const BY_NODE: &str = "by-node";

/// Finds pods by their node, through any view. Cheap to clone.
pub(crate) struct OnNode<V> {
    pods: Lister<V>,
}

impl<V> Clone for OnNode<V> {
    fn clone(&self) -> Self {
        Self { pods: self.pods.clone() }
    }
}

impl<V: View> OnNode<V> {
    /// Adds the index to the informer of pods, if it is not there, and reads from it.
    pub(crate) fn of(pods: &Informer) -> Self {
        pods.add_index(BY_NODE, Arc::new(node_of));
        Self { pods: pods.lister() }
    }

    pub(crate) fn pods(&self, node: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        self.pods.indexed(BY_NODE, node)
    }
}

fn node_of(pod: &Object) -> Vec<String> {
    let node = pod.view::<Pod>().ok().map(|pod| pod.node.to_string());
    node.into_iter().filter(|node| !node.is_empty()).collect()
}
