//! DaemonSets: nodes without a ready pod, node selectors that match nothing, and updates on delete.

use crate::inquiry::{Inquiry, node_of, share};
use crate::kinds::{NODE, POD};
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::replicasets::of_pods;
use crate::snapshot::Item;
use crate::{creation, pods};

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, set: &'a Item) -> Node {
    let node = node_of(set);
    if let Some(node) = creation::not_seen(inquiry, set, &node) {
        return node;
    }
    let count = |field: &str| set.count(&format!("/status/{field}"));
    let (wanted, ready, current) =
        (count("desiredNumberScheduled"), count("numberReady"), count("currentNumberScheduled"));
    if wanted == 0 {
        return nowhere(inquiry, set, node);
    }
    let updated = count("updatedNumberScheduled");
    let summary = share(ready, wanted, "pod", "ready");
    let owned = inquiry.owned(set, &POD);
    let children = pods::explain_all(inquiry, &owned);
    if ready >= wanted && updated >= wanted {
        return node.converged(summary).children(children);
    }
    if current < wanted
        && let Some(node) = creation::failed(inquiry, set, &node)
    {
        return node.children(children);
    }
    if ready >= wanted && set.text("/spec/updateStrategy/type") == "OnDelete" {
        let text = format!(
            "{} pods have an earlier revision, and are only replaced when they are deleted (OnDelete)",
            wanted - updated
        );
        let field = Evidence::field("spec.updateStrategy.type", "OnDelete");
        return node
            .blocked(text, "delete the pods, or use RollingUpdate")
            .root()
            .evidence([field])
            .children(children);
    }
    of_pods(node, format!("{summary}, {updated} updated"), children)
}

/// A set that matches no node.
fn nowhere<'a>(inquiry: &Inquiry<'a>, set: &'a Item, node: Node) -> Node {
    let nodes = inquiry.snapshot.list(&NODE, None);
    let selector = set.pairs("/spec/template/spec/nodeSelector");
    let selector: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let number = nodes.as_ref().map_or(0, Vec::len);
    if nodes.is_some() && number == 0 {
        return node.blocked("the cluster has no nodes", "add a node");
    }
    if nodes.is_none() {
        return node.unknown("should run on no node");
    }
    let field = Evidence::field("spec.template.spec.nodeSelector", selector.join(","));
    match selector.is_empty() {
        false => {
            let text = format!("none of {number} nodes matches its node selector {}", selector.join(","));
            node.blocked(text, format!("label nodes with {}, or change the selector", selector.join(","))).evidence([field])
        }
        true => node.blocked(
            format!("none of {number} nodes can run its pods: they do not match its node affinity, or have taints that it does not tolerate"),
            "change the node affinity or the tolerations of its pods",
        ),
    }
}
