//! Deployments: the rollout of the current ReplicaSet, and why it is stuck.

use crate::creation;
use crate::inquiry::{Inquiry, node_of, share};
use crate::kinds::REPLICA_SET;
use crate::model::{Evidence, Node, State};
use crate::read::Read;
use crate::snapshot::Item;

const REVISION: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, deployment: &'a Item) -> Node {
    let node = node_of(deployment);
    if let Some(node) = creation::not_seen(inquiry, deployment, &node) {
        return node;
    }
    let wanted = deployment.number("/spec/replicas").unwrap_or(1).max(0) as usize;
    let count = |field: &str| deployment.count(&format!("/status/{field}"));
    let (all, updated, available) = (count("replicas"), count("updatedReplicas"), count("availableReplicas"));
    let is_complete = updated == wanted && all == wanted && available >= wanted;
    let sets = sets(inquiry, deployment);
    let mut children: Vec<Node> = sets.iter().map(|set| inquiry.explain(set)).collect();
    // Problems of the previous pods do not matter: they are being replaced.
    if children.first().is_some_and(|current| current.state == State::Progressing) {
        children.truncate(1);
    }
    let summary = format!("{}, {updated} updated", share(available, wanted, "pod", "available"));
    let is_paused = deployment.flag("/spec/paused");
    if is_complete && !(is_paused && differs(deployment, &sets)) {
        return node.converged(summary).children(children);
    }
    let conditions = deployment.conditions();
    let unmet =
        conditions.iter().filter(|one| one.kind == "ReplicaFailure" && one.is_true() || !one.is_true());
    let node = node.evidence(unmet.map(|one| one.evidence()));
    if is_paused {
        return paused(deployment, node, &summary).children(children);
    }
    if let Some(node) = creation::failed(inquiry, deployment, &node).filter(|_| children.is_empty()) {
        return node;
    }
    rolling(deployment, node, &summary, children)
}

/// Lists the current ReplicaSet, and the earlier ones that still have pods, the current one first.
fn sets<'a>(inquiry: &Inquiry<'a>, deployment: &'a Item) -> Vec<&'a Item> {
    let mut sets = inquiry.owned(deployment, &REPLICA_SET);
    sets.sort_by_key(|set| std::cmp::Reverse(revision(set)));
    let mut nth = 0;
    sets.retain(|set| {
        nth += 1;
        nth == 1 || set.number("/spec/replicas").unwrap_or(1) > 0 || set.count("/status/replicas") > 0
    });
    sets.truncate(crate::inquiry::MAX_GROUPS);
    sets
}

fn revision(set: &Item) -> i64 {
    set.text(REVISION).parse().unwrap_or_default()
}

/// Whether the template of a paused Deployment differs from that of its latest ReplicaSet.
fn differs(deployment: &Item, sets: &[&Item]) -> bool {
    let containers = "/spec/template/spec/containers";
    sets.first().is_none_or(|set| set.at(containers) != deployment.at(containers))
}

fn paused(deployment: &Item, node: Node, summary: &str) -> Node {
    let text = format!("its rollout is paused ({summary})");
    let fix = format!(
        "kubectl rollout resume deployment/{} -n {}",
        deployment.name(),
        deployment.namespace().unwrap_or_default()
    );
    node.blocked(text, fix).root().evidence([Evidence::field("spec.paused", true)])
}

fn rolling(deployment: &Item, node: Node, summary: &str, children: Vec<Node>) -> Node {
    let progress = deployment.condition("Progressing");
    let deadline = progress.filter(|progress| progress.reason == "ProgressDeadlineExceeded");
    let seconds = deployment.number("/spec/progressDeadlineSeconds").unwrap_or(600);
    let node = node.children(children);
    if deadline.is_some() {
        let text =
            format!("its rollout has made no progress for {seconds}s (ProgressDeadlineExceeded): {summary}");
        return node.blocked(text, "make its pods ready, or kubectl rollout undo");
    }
    let worst = node.worst_child();
    let until = progress.and_then(|progress| {
        let start = progress.time?;
        start.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
    });
    let node = match worst {
        State::Blocked | State::Failed => node.blocked(summary, "make its pods ready"),
        State::Unknown => node.unknown(summary),
        _ => node.progressing(format!("is rolling out: {summary}")),
    };
    node.next("its rollout counts as failed if it makes no progress until then", until)
}
