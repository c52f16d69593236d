//! StatefulSets: the ordinal that the others wait for, partitions, and updates on delete.

use crate::inquiry::{Inquiry, node_of, share};
use crate::kinds::POD;
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
    let wanted = set.number("/spec/replicas").unwrap_or(1).max(0) as usize;
    let (ready, all) = (set.count("/status/readyReplicas"), set.count("/status/replicas"));
    let mut owned = inquiry.owned(set, &POD);
    owned.sort_by_key(|pod| ordinal(pod));
    let summary = share(ready, wanted, "pod", "ready");
    let is_updated = set.text("/status/currentRevision") == set.text("/status/updateRevision");
    let children = pods::explain_all(inquiry, &owned);
    if ready == wanted && all == wanted {
        return match is_updated {
            true => node.converged(summary).children(children),
            false => outdated(set, node, &summary, &owned).children(children),
        };
    }
    if all < wanted
        && let Some(node) = creation::failed(inquiry, set, &node)
    {
        return node.children(children);
    }
    let ordered = !matches!(set.text("/spec/podManagementPolicy"), "Parallel");
    match first_open(&owned).filter(|_| ordered && (all < wanted || !is_updated)) {
        Some(open) => waits_for(inquiry, node, &summary, open, is_updated, set),
        None => of_pods(node, summary, children),
    }
}

fn ordinal(pod: &Item) -> u64 {
    pod.name().rsplit('-').next().and_then(|ordinal| ordinal.parse().ok()).unwrap_or_default()
}

/// Returns the first pod that is not ready.
fn first_open<'a>(pods: &[&'a Item]) -> Option<&'a Item> {
    pods.iter().find(|pod| !pods::is_ready(pod)).copied()
}

/// A set that creates or updates one pod at a time, and is stuck at this one.
fn waits_for<'a>(
    inquiry: &Inquiry<'a>,
    node: Node,
    summary: &str,
    open: &'a Item,
    is_updated: bool,
    set: &Item,
) -> Node {
    let text = format!(
        "waits for pod {} to become ready before it continues (OrderedReady): {summary}",
        open.name()
    );
    let child = inquiry.explain(open);
    let revision = open.text("/metadata/labels/controller-revision-hash");
    let is_old = !is_updated && revision != set.text("/status/updateRevision");
    let fix = match is_old {
        true => format!(
            "delete pod {}: it has the previous revision, and is not replaced before it is ready",
            open.name()
        ),
        false => format!("make pod {} ready, or use podManagementPolicy: Parallel", open.name()),
    };
    let stuck = child.state.is_stuck();
    let node = node.evidence([Evidence::field("spec.podManagementPolicy", "OrderedReady")]);
    match stuck {
        true => node.blocked(text, fix).children([child]),
        false => node.progressing(text).children([child]),
    }
}

/// A set whose pods are ready but do not all have the latest revision.
fn outdated(set: &Item, node: Node, summary: &str, owned: &[&Item]) -> Node {
    let update = set.text("/status/updateRevision");
    let hash = "/metadata/labels/controller-revision-hash";
    let old = owned.iter().filter(|pod| pod.text(hash) != update).count();
    if set.text("/spec/updateStrategy/type") == "OnDelete" {
        let text = format!(
            "{old} pods have an earlier revision, and are only replaced when they are deleted (OnDelete)"
        );
        let field = Evidence::field("spec.updateStrategy.type", "OnDelete");
        return node
            .blocked(text, "delete the pods one by one, or use RollingUpdate")
            .root()
            .evidence([field]);
    }
    let partition = set.number("/spec/updateStrategy/rollingUpdate/partition").unwrap_or_default();
    if partition > 0 {
        let text = format!(
            "pods with an ordinal below the partition {partition} keep the previous revision ({old} of them)"
        );
        let field = Evidence::field("spec.updateStrategy.rollingUpdate.partition", partition);
        return node.blocked(text, "lower the partition to 0 to update all pods").root().evidence([field]);
    }
    node.progressing(format!("is being updated: {summary}, {old} still to be replaced"))
}
