//! ReplicaSets and ReplicationControllers: pods that cannot be created or do not become ready.

use crate::inquiry::{Inquiry, node_of, share};
use crate::kinds::POD;
use crate::model::{Node, State};
use crate::read::Read;
use crate::snapshot::Item;
use crate::{creation, pods};

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, set: &'a Item) -> Node {
    let node = node_of(set);
    if let Some(node) = creation::not_seen(inquiry, set, &node) {
        return node;
    }
    let wanted = set.number("/spec/replicas").unwrap_or(1).max(0) as usize;
    let (all, available) = (set.count("/status/replicas"), set.count("/status/availableReplicas"));
    let owned = inquiry.owned(set, &POD);
    let active: Vec<&Item> = owned.into_iter().filter(|pod| !pods::has_ended(pod)).collect();
    let summary = share(available, wanted, "pod", "available");
    if all == wanted && available >= wanted {
        let text = if wanted == 0 { "scaled to 0".to_owned() } else { summary };
        return node.converged(text).children(pods::explain_all(inquiry, &active));
    }
    let children = pods::explain_all(inquiry, &active);
    if all < wanted
        && let Some(node) = creation::failed(inquiry, set, &node)
    {
        return node.children(children);
    }
    of_pods(node, summary, children)
}

/// Explains an object that waits for its pods.
pub(crate) fn of_pods(node: Node, summary: String, children: Vec<Node>) -> Node {
    let node = node.children(children);
    match node.worst_child() {
        State::Blocked | State::Failed => node.blocked(summary, "make its pods ready"),
        State::Unknown => node.unknown(summary),
        _ => node.progressing(summary),
    }
}
