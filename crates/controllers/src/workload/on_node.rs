//! From a node to its pods.

use std::sync::Arc;

use setpoint::object::DecodeError;
use setpoint::{Cached, Informer, Lister, Object, View};

use super::pod::Pod;

const BY_NODE: &str = "by-node";

/// Finds pods by node, through any view. Cheap to clone.
pub(crate) struct OnNode<V> {
    pods: Lister<V>,
}

impl<V> Clone for OnNode<V> {
    fn clone(&self) -> Self {
        Self { pods: self.pods.clone() }
    }
}

impl<V: View> OnNode<V> {
    /// Adds the index to the informer of pods, if missing, and reads from it.
    pub(crate) fn of(pods: &Informer) -> Self {
        pods.add_index(BY_NODE, Arc::new(|pod| node_of(pod).map(str::to_owned).into_iter().collect()));
        Self { pods: pods.lister() }
    }

    pub(crate) fn pods(&self, node: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        self.pods.indexed(BY_NODE, node)
    }
}

/// Returns a pod's node. Unscheduled pods have no such field and need not be decoded.
pub(crate) fn node_of(pod: &Object) -> Option<&str> {
    if !pod.contains_text("\"nodeName\"") {
        return None;
    }
    pod.view::<Pod>().ok().map(|pod| &*pod.node).filter(|node| !node.is_empty())
}
