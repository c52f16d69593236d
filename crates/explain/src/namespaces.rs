//! Namespaces. [`deletion`](crate::deletion) explains why one is stuck in deletion.

use serde_json::Value;

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{API_SERVICE, GroupKind, LEASE};
use crate::leases;
use crate::model::{Evidence, Node, State};
use crate::read::Read;
use crate::snapshot::Item;

pub(crate) fn explain<'a>(_: &Inquiry<'a>, namespace: &'a Item) -> Node {
    let node = node_of(namespace);
    match namespace.text("/status/phase") {
        "" | "Active" => node.converged("active"),
        phase => node.progressing(format!("is {phase}")),
    }
}

/// Explains a namespace that is being deleted.
pub(crate) fn terminating<'a>(inquiry: &Inquiry<'a>, namespace: &'a Item, since: &str) -> Node {
    let conditions = namespace.conditions();
    let stuck: Vec<_> = conditions.iter().filter(|condition| condition.is_true()).collect();
    let node = node_of(namespace).evidence(stuck.iter().map(|condition| condition.evidence()));
    let find = |kind: &str| stuck.iter().find(|condition| condition.kind == kind);
    if let Some(failed) = find("NamespaceDeletionDiscoveryFailure") {
        let children = unavailable(inquiry);
        let text =
            format!("has been Terminating for {since}: its content cannot be discovered: {}", failed.message);
        return node
            .blocked(text, "repair or delete the APIServices that are not available")
            .children(children);
    }
    if let Some(failed) = find("NamespaceDeletionContentFailure")
        .or_else(|| find("NamespaceDeletionGroupVersionParsingFailure"))
    {
        let text =
            format!("has been Terminating for {since}: its content cannot be deleted: {}", failed.message);
        return node.blocked(text, "correct what the message names").children(remaining(
            inquiry,
            namespace,
            failed.message,
        ));
    }
    if let Some(finalizers) = find("NamespaceFinalizersRemaining") {
        let content = find("NamespaceContentRemaining").map(|content| content.message).unwrap_or_default();
        let children = remaining(inquiry, namespace, content);
        let text = format!("has been Terminating for {since}: {} {content}", finalizers.message);
        return node
            .blocked(text, "let the owners of the finalizers finish, or remove the finalizers")
            .children(children);
    }
    if let Some(content) = find("NamespaceContentRemaining") {
        let children = remaining(inquiry, namespace, content.message);
        let node = node.children(children);
        let text = format!("has been Terminating for {since}: {}", content.message);
        return match node.worst_child().is_stuck() {
            true => node.blocked(text, "see what remains"),
            false => node.progressing(text),
        };
    }
    let foreign: Vec<&str> = namespace
        .items("/spec/finalizers")
        .iter()
        .filter_map(Value::as_str)
        .filter(|finalizer| *finalizer != "kubernetes")
        .collect();
    if !foreign.is_empty() {
        let all = foreign.join(", ");
        let field = Evidence::field("spec.finalizers", &all);
        return node
            .blocked(
                format!("has been Terminating for {since}: it waits for its finalizers {all}"),
                format!("the controller of {all} has to remove it"),
            )
            .evidence([field]);
    }
    let text = format!("has been Terminating for {since}");
    match leases::component_down(inquiry, "kube-controller-manager") {
        Some(down) => {
            let lease = inquiry.explain_named(&LEASE, Some("kube-system"), "kube-controller-manager");
            node.blocked(format!("{text}: {down}"), "start kube-controller-manager").children(lease)
        }
        None => node.progressing(text),
    }
}

fn unavailable<'a>(inquiry: &Inquiry<'a>) -> Vec<Node> {
    let all = inquiry.list(&API_SERVICE, None);
    let is_down = |api: &&&Item| api.condition("Available").is_some_and(|available| !available.is_true());
    all.iter().filter(is_down).take(crate::inquiry::MAX_GROUPS).map(|api| inquiry.explain(api)).collect()
}

/// Explains the objects that remain: `Some resources are remaining: configmaps. has 1 resource instances`.
fn remaining<'a>(inquiry: &Inquiry<'a>, namespace: &'a Item, message: &str) -> Vec<Node> {
    let listed = message.split_once("remaining: ").map_or(message, |(_, rest)| rest);
    let mut found = Vec::new();
    for part in listed.split(", ").take(crate::inquiry::MAX_GROUPS) {
        let Some(kind) = part.split(" has ").next().and_then(|resource| kind_of(inquiry, resource)) else {
            continue;
        };
        let items = inquiry.list(&kind, Some(namespace.name()));
        found.extend(inquiry.explain_groups(&items, |item| item.at("/metadata/finalizers").to_string()));
    }
    found.retain(|node| node.state != State::Converged);
    found.truncate(crate::inquiry::MAX_GROUPS);
    found
}

/// Returns the kind of a resource in the form `configmaps.` or `widgets.example.com`.
fn kind_of(inquiry: &Inquiry<'_>, resource: &str) -> Option<GroupKind> {
    let (plural, group) = resource.trim().split_once('.')?;
    let served = inquiry.snapshot.served().iter();
    let mut same = served.filter(|served| served.plural == plural && served.kind.group == group);
    same.next().map(|served| served.kind.clone())
}
