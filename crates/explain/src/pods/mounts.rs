//! Pods whose containers are not created yet: volumes that cannot be attached or mounted, sandboxes that cannot be
//! created, and unresponsive nodes.

use super::configuration;
use crate::claims;
use crate::inquiry::Inquiry;
use crate::kinds::{ATTACHMENT, CLAIM, NODE, RUNTIME_CLASS};
use crate::model::{Node, State};
use crate::read::Read;
use crate::snapshot::{Event, Item, Lookup};
use crate::text::duration;

/// How long containers may take to be created before that is suspicious.
const LONG: i64 = 120;

pub(super) fn explain<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let missing = configuration::missing(inquiry, pod);
    let events = inquiry.events(pod);
    let failed = |reasons: &[&str]| events.iter().copied().find(|event| reasons.contains(&event.reason()));
    if let Some(event) = failed(&["FailedAttachVolume"]) {
        return attach(inquiry, pod, node, &event);
    }
    let mount = failed(&["FailedMount", "FailedMapVolume", "VolumeFailedPermanently"]);
    if !missing.is_empty() {
        let said = mount.map(|event| format!(": {}", event.message())).unwrap_or_default();
        let text =
            format!("its containers cannot be created, because something they refer to does not exist{said}");
        let evidence = mount.map(|event| inquiry.evidence(&event));
        return node
            .blocked(text, "create what is missing")
            .evidence(evidence)
            .next("the kubelet retries until it exists", None)
            .children(missing);
    }
    if let Some(event) = mount {
        let text = format!("a volume cannot be mounted (FailedMount): {}", event.message());
        let node =
            node.blocked(text, "correct the volume as the message says").evidence([inquiry.evidence(&event)]);
        return node.next("the kubelet retries", None).children(unbound(inquiry, pod));
    }
    if let Some(event) = failed(&[
        "FailedCreatePodSandBox",
        "FailedCreatePodContainer",
        "NetworkNotReady",
        "FailedPodSandBoxStatus",
    ]) {
        return sandbox(inquiry, pod, node, &event);
    }
    let unbound = unbound(inquiry, pod);
    if !unbound.is_empty() {
        return node.blocked("waits for its volumes", "make its claims bind").children(unbound);
    }
    starting(inquiry, pod, node)
}

/// A volume that cannot be attached to the node.
fn attach<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, event: &Event<'_>) -> Node {
    let said = event.message();
    let fix = match said.contains("Multi-Attach") {
        true => {
            "stop the pod that uses the volume on another node, or use a volume with access mode ReadWriteMany"
        }
        false => "correct what the message names",
    };
    let text = format!("a volume cannot be attached (FailedAttachVolume): {said}");
    let on = pod.text("/spec/nodeName");
    let attachments = inquiry.list(&ATTACHMENT, None);
    let failed = attachments
        .into_iter()
        .filter(|one| one.text("/spec/nodeName") == on && one.has("/status/attachError"));
    let children: Vec<Node> = failed.take(3).map(|one| inquiry.explain(one)).collect();
    node.blocked(text, fix)
        .evidence([inquiry.evidence(event)])
        .next("the attach-detach controller retries; a lost node's volumes are detached by force after 6 minutes", None)
        .children(children)
}

fn sandbox<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, event: &Event<'_>) -> Node {
    let said = event.message();
    let class = pod.text("/spec/runtimeClassName");
    let fix = match said {
        _ if !class.is_empty() && inquiry.get(&RUNTIME_CLASS, None, class).is_missing() => {
            format!("create the RuntimeClass {class}")
        }
        said if said.contains("RuntimeHandler") || said.contains("runtime handler") => {
            "install the runtime of the RuntimeClass on the node".to_owned()
        }
        said if said.contains("network") || said.contains("cni") || said.contains("CNI") => {
            "repair the network plugin (CNI) on the node".to_owned()
        }
        _ => "repair the container runtime on the node".to_owned(),
    };
    let text = format!("its sandbox cannot be created ({}): {said}", event.reason());
    node.blocked(text, fix).evidence([inquiry.evidence(event)]).next("the kubelet retries", None)
}

/// Explains the claims of a pod that are missing or not bound.
fn unbound<'a>(inquiry: &Inquiry<'a>, pod: &'a Item) -> Vec<Node> {
    let names = claims::of_pod(pod);
    let explained = names.iter().filter_map(|name| match inquiry.get(&CLAIM, pod.namespace(), name) {
        Lookup::Missing => Some(claims::missing(pod, name)),
        found => Some(inquiry.explain(found.found()?)),
    });
    explained.filter(|claim| claim.state != State::Converged).collect()
}

fn starting<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let since = pod.condition("PodScheduled").and_then(|condition| condition.time);
    let seconds = since.map_or(inquiry.age(pod), |since| inquiry.now.duration_since(since).as_secs());
    let on = pod.text("/spec/nodeName");
    let has_status = pod.has("/status/startTime");
    let text = match has_status {
        true => format!(
            "its containers are being created on node {on} for {} (ContainerCreating)",
            duration(seconds)
        ),
        false => format!("node {on} has not accepted it for {}", duration(seconds)),
    };
    if seconds < LONG {
        return node.progressing(text);
    }
    let host = inquiry.explain_named(&NODE, None, on).filter(|host| host.state != State::Converged);
    let fix = match has_status {
        true => "look at the events of the pod: a large image or a slow volume takes long",
        false => "check that the kubelet of the node runs",
    };
    node.blocked(text, fix).children(host)
}
