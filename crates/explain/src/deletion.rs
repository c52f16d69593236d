//! Objects that are stuck in deletion: the finalizer, its controller, and whether that controller is running.

use serde_json::Value;

use crate::extension::CONTROLLER_KINDS;
use crate::inquiry::{Inquiry, node_of};
use crate::kinds::*;
use crate::leases;
use crate::model::{Evidence, Node, State};
use crate::pods;
use crate::read::Read;
use crate::snapshot::{Item, Served};
use crate::text::{count, duration};
use crate::{claims, namespaces};

/// How long a controller may take to remove its finalizer.
const MOMENT: i64 = 30;

/// How many kinds are searched for blocking dependents. A cluster has about 60 built-in namespaced kinds.
const MAX_KINDS: usize = 120;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, item: &'a Item) -> Node {
    let deleted = item.object.meta().deletion_timestamp;
    let since = inquiry.since(deleted);
    let seconds = deleted.map_or(0, |deleted| inquiry.now.duration_since(deleted).as_secs());
    if item.kind == NAMESPACE {
        return namespaces::terminating(inquiry, item, &since);
    }
    let finalizers: Vec<&str> = item.object.meta().finalizers.iter().map(|finalizer| &**finalizer).collect();
    let node = node_of(item)
        .evidence([Evidence::field("metadata.deletionTimestamp", item.text("/metadata/deletionTimestamp"))])
        .evidence(
            (!finalizers.is_empty()).then(|| Evidence::field("metadata.finalizers", finalizers.join(", "))),
        );
    let Some(finalizer) = finalizers.first() else { return without_finalizer(inquiry, item, node, seconds) };
    match *finalizer {
        "foregroundDeletion" => foreground(inquiry, item, node, &since),
        "orphan" => collector(inquiry, node, &since, "orphan its dependents"),
        "kubernetes.io/pvc-protection" => used_claim(inquiry, item, node, &since),
        "kubernetes.io/pv-protection" => used_volume(inquiry, item, node, &since),
        "service.kubernetes.io/load-balancer-cleanup" => {
            let text = format!(
                "has been terminating for {since}: its load balancer has to be cleaned up (finalizer {finalizer})"
            );
            node.blocked(text, "run the cloud controller manager that made the load balancer")
        }
        "customresourcecleanup.apiextensions.k8s.io" => instances(inquiry, item, node, &since),
        finalizer => foreign(inquiry, item, node, finalizer, seconds),
    }
}

/// A CustomResourceDefinition, whose objects the API server deletes first.
fn instances<'a>(inquiry: &Inquiry<'a>, definition: &'a Item, node: Node, since: &str) -> Node {
    let kind = GroupKind::named(definition.text("/spec/group"), definition.text("/spec/names/kind"));
    let left = inquiry.list(&kind, None);
    let children = inquiry.explain_groups(&left, |one| one.at("/metadata/finalizers").to_string());
    let node = node.children(children);
    let text = match left.is_empty() {
        true => format!("has been terminating for {since}"),
        false => {
            format!("has been terminating for {since}: {} of its kind left", count(left.len(), "object"))
        }
    };
    match node.worst_child().is_stuck() {
        true => node.blocked(text, "let the controllers of these objects finish, or remove their finalizers"),
        false => node.progressing(text),
    }
}

/// A deleted object without finalizers: only pods take time to disappear.
fn without_finalizer<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: Node, seconds: i64) -> Node {
    let host = item.text("/spec/nodeName");
    if item.kind != POD || host.is_empty() {
        return node.progressing("is being deleted");
    }
    let lost = inquiry.get(&NODE, None, host).found();
    let lost = lost.filter(|lost| !lost.condition("Ready").is_some_and(|ready| ready.is_true()));
    let fix = format!(
        "recover node {host}, or kubectl delete pod {} --force once you are sure that it does not run",
        item.name()
    );
    if let Some(lost) = lost {
        let text = format!("is Terminating: node {host} is not ready and cannot confirm that it has stopped");
        return node.blocked(text, fix).children([inquiry.explain(lost)]);
    }
    // The deletion timestamp already includes the grace period.
    match seconds > MOMENT {
        true => {
            let text =
                format!("is Terminating for {} longer than its grace period allows", duration(seconds));
            node.blocked(
                text,
                format!("look at the kubelet of node {host}: a volume or a container does not stop"),
            )
        }
        false => {
            let grace = item.number("/metadata/deletionGracePeriodSeconds").unwrap_or(30);
            node.progressing(format!("is stopping, with a grace period of {grace}s"))
                .next("the kubelet kills its containers", item.object.meta().deletion_timestamp)
        }
    }
}

fn collector(inquiry: &Inquiry<'_>, node: Node, since: &str, what: &str) -> Node {
    let text = format!("has been terminating for {since}: the garbage collector has to {what}");
    match leases::component_down(inquiry, "kube-controller-manager") {
        Some(down) => node.blocked(format!("{text}; {down}"), "start kube-controller-manager"),
        None => node.progressing(text),
    }
}

/// Foreground deletion: waits for dependents that block it.
fn foreground<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: Node, since: &str) -> Node {
    let blocks = |dependent: &&&'a Item| {
        let owners = &dependent.object.meta().owner_references;
        owners.iter().any(|owner| &*owner.uid == item.uid() && owner.block_owner_deletion == Some(true))
    };
    let mut waiting: Vec<&'a Item> = Vec::new();
    for kind in dependent_kinds(inquiry, item) {
        waiting.extend(inquiry.owned(item, &kind).iter().filter(blocks));
    }
    if waiting.is_empty() {
        return collector(inquiry, node, since, "finish the foreground deletion");
    }
    let names: Vec<String> = waiting.iter().map(|one| format!("{}/{}", one.kind.kind, one.name())).collect();
    let children =
        inquiry.explain_groups(&waiting, |one| format!("{}{}", one.kind, one.at("/metadata/finalizers")));
    let text = format!(
        "has been waiting for {since} for its dependents to be deleted (foreground): {}",
        crate::text::names(&names, 3)
    );
    let node = node.children(children);
    match node.worst_child().is_stuck() {
        true => node.blocked(text, "let its dependents be deleted"),
        false => node.progressing(text),
    }
}

/// Lists the kinds whose objects may have this owner: those in its namespace, or all if it has none.
fn dependent_kinds(inquiry: &Inquiry<'_>, owner: &Item) -> Vec<GroupKind> {
    let usual = [POD, REPLICA_SET, JOB];
    let well_known = matches!(
        &*owner.kind.kind,
        "Deployment" | "ReplicaSet" | "Job" | "CronJob" | "DaemonSet" | "StatefulSet"
    );
    if well_known && (owner.kind.group == "apps" || owner.kind.group == "batch") {
        let mut kinds = usual.to_vec();
        kinds.push(CONFIG_MAP);
        return kinds;
    }
    let may_be = |served: &&Served| {
        served.listable && served.namespaced == owner.namespace().is_some() && &*served.kind.kind != "Event"
    };
    inquiry
        .snapshot
        .served()
        .iter()
        .filter(may_be)
        .map(|served| served.kind.clone())
        .take(MAX_KINDS)
        .collect()
}

fn used_claim<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node, since: &str) -> Node {
    let pods = inquiry.list(&POD, claim.namespace());
    let uses = |pod: &&&'a Item| {
        !pods::has_ended(pod) && claims::of_pod(pod).iter().any(|name| name == claim.name())
    };
    let users: Vec<&str> = pods.iter().filter(uses).map(|pod| pod.name()).collect();
    match users.is_empty() {
        true => collector(inquiry, node, since, "confirm that no pod uses it (pvc-protection)"),
        false => {
            let users = crate::text::names(&users, 3);
            let text = format!(
                "has been terminating for {since}, but is still used by pod {users} (finalizer kubernetes.io/pvc-protection)"
            );
            node.blocked(text, format!("delete pod {users}, or the workload that owns it"))
        }
    }
}

fn used_volume<'a>(inquiry: &Inquiry<'a>, volume: &'a Item, node: Node, since: &str) -> Node {
    let (namespace, name) = (volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"));
    if volume.text("/status/phase") != "Bound" {
        return collector(inquiry, node, since, "confirm that no claim uses it (pv-protection)");
    }
    let text = format!(
        "has been terminating for {since}, but is still bound to claim {namespace}/{name} (finalizer kubernetes.io/pv-protection)"
    );
    let claim =
        inquiry.explain_named(&CLAIM, Some(namespace), name).filter(|claim| claim.state != State::Converged);
    node.blocked(text, format!("delete claim {namespace}/{name}")).children(claim)
}

/// A finalizer of a controller: who set it, and whether that controller is running.
fn foreign<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: Node, finalizer: &str, seconds: i64) -> Node {
    let since = duration(seconds);
    let manager = manager_of(item, finalizer);
    let built_in =
        finalizer.starts_with("batch.kubernetes.io/") || finalizer.starts_with("resource.kubernetes.io/");
    let down = built_in.then(|| leases::component_down(inquiry, "kube-controller-manager")).flatten();
    if let Some(down) = down {
        let text = format!(
            "has been terminating for {since}: finalizer {finalizer} waits for kube-controller-manager; {down}"
        );
        return node.blocked(text, "start kube-controller-manager");
    }
    let set_by = manager.map(|manager| format!(", set by {manager}")).unwrap_or_default();
    let text = format!("has been terminating for {since}, but has the finalizer {finalizer}{set_by}");
    if seconds <= MOMENT {
        return node.progressing(text);
    }
    let controllers = controllers(inquiry, finalizer, manager);
    let remove = "after you have cleaned up what it protects, remove the finalizer";
    let (who, fix) = match controllers.as_slice() {
        [] => (
            "no controller for it was found in this cluster".to_owned(),
            format!("start the controller that owns {finalizer}; or, {remove}"),
        ),
        [found, ..] if ready(found) == 0 => (
            format!(
                "its controller, {} {}/{}, is not running",
                found.kind.kind,
                found.namespace().unwrap_or_default(),
                found.name()
            ),
            format!("start {} {}; or, {remove}", found.kind.kind, found.name()),
        ),
        [found, ..] => (
            format!(
                "its controller, {} {}/{}, is running",
                found.kind.kind,
                found.namespace().unwrap_or_default(),
                found.name()
            ),
            format!("see the log of {} {}; or, {remove}", found.kind.kind, found.name()),
        ),
    };
    let events = inquiry.events(item);
    let warning = events.iter().find(|event| event.is_warning());
    let children = controllers.first().filter(|found| ready(found) == 0).map(|found| inquiry.explain(found));
    let node = node.evidence(warning.map(|event| inquiry.evidence(event)));
    node.blocked(format!("{text}; {who}"), fix).root().children(children)
}

fn ready(controller: &Item) -> usize {
    controller.count("/status/readyReplicas")
}

/// Returns the field manager that set a finalizer.
fn manager_of<'a>(item: &'a Item, finalizer: &str) -> Option<&'a str> {
    let entry = format!("v:\"{finalizer}\"");
    let owns = |fields: &Value| fields.at("/fieldsV1/f:metadata/f:finalizers").get(&entry).is_some();
    let managed = item.items("/metadata/managedFields");
    managed
        .iter()
        .find(|fields| owns(fields))
        .map(|fields| fields.text("/manager"))
        .filter(|name| !name.is_empty())
}

/// Finds the controller of a finalizer: a workload with a name similar to the field manager's or to the finalizer's
/// domain.
fn controllers<'a>(inquiry: &Inquiry<'a>, finalizer: &str, manager: Option<&str>) -> Vec<&'a Item> {
    let domain = finalizer.split('/').next().unwrap_or_default();
    let of_users = ["kubectl", "curl", "unknown", "helm", "python", "Mozilla"];
    let manager = manager.filter(|manager| !of_users.iter().any(|user| manager.starts_with(user)));
    let words: Vec<String> = manager
        .into_iter()
        .map(|manager| manager.split(['/', ' ']).next().unwrap_or_default().to_lowercase())
        .chain(domain.split('.').next().map(str::to_lowercase))
        .filter(|word| word.len() > 3)
        .collect();
    let all: Vec<&'a Item> = CONTROLLER_KINDS.iter().flat_map(|kind| inquiry.list(kind, None)).collect();
    let is_named = |item: &&&Item| words.iter().any(|word| item.name().contains(word.as_str()));
    all.iter().filter(is_named).copied().collect()
}
