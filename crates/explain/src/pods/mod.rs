//! Pods: from creation to readiness, in this order.
//!
//! ```text
//!  gated ─► scheduled ─► volumes ─► sandbox ─► init containers ─► images, configuration ─► started ─► ready
//!  mod.rs   scheduling.rs  mounts.rs             containers.rs     images.rs, configuration.rs   probes.rs
//! ```

mod configuration;
mod containers;
mod images;
mod mounts;
mod probes;
pub(crate) mod scheduling;
mod summary;

pub(crate) use summary::Summary;

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{LEASE, NODE, PRIORITY_CLASS};
use crate::leases;
use crate::model::{Evidence, Node, State};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::duration;

/// How long a pod may take to get a node or a first status before that is suspicious.
const MOMENT: i64 = 30;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, pod: &'a Item) -> Node {
    let node = node_of(pod);
    match pod.text("/status/phase") {
        "Succeeded" => node.converged("succeeded"),
        "Failed" => failed(inquiry, pod, node),
        _ if pod.text("/spec/nodeName").is_empty() => waiting_for_node(inquiry, pod, node),
        _ => on_node(inquiry, pod, node),
    }
}

/// Explains pods: one of each state, the others are counted.
pub(crate) fn explain_all<'a>(inquiry: &Inquiry<'a>, pods: &[&'a Item]) -> Vec<Node> {
    inquiry.explain_groups(pods, |pod| pod.as_pod().fingerprint.clone())
}

/// Whether a pod counts as ready.
pub(crate) fn is_ready(pod: &Item) -> bool {
    pod.as_pod().is_ready
}

pub(crate) fn has_ended(pod: &Item) -> bool {
    pod.as_pod().has_ended
}

/// A pod that has failed as a whole.
fn failed<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let (reason, message) = (pod.text("/status/reason"), pod.text("/status/message"));
    let evidence = Evidence::field("status", format!("phase Failed, reason {reason:?}: {message}"));
    if reason.is_empty() {
        return containers::failed(inquiry, pod, node).evidence([evidence]);
    }
    let fix = match reason {
        "Evicted" => {
            "lower its usage or raise its requests, and free resources on the node; its controller replaces it"
        }
        "DeadlineExceeded" => "raise spec.activeDeadlineSeconds or make it finish sooner",
        "Preempting" | "Preempted" => "give it a higher priority, or add nodes",
        "Shutdown" | "NodeShutdown" | "Terminated" => "the node was shut down; its controller replaces it",
        "NodeAffinity" | "NodeAffinityFailed" => {
            "the labels of the node do not match the pod; let the scheduler place it"
        }
        "UnexpectedAdmissionError" => "the node could not allocate a device; check its device plugins",
        reason if reason.starts_with("OutOf") => {
            "the node has no room; do not set spec.nodeName, or free resources there"
        }
        _ => "delete it, its controller replaces it",
    };
    let on = pod.text("/spec/nodeName");
    let place = if on.is_empty() { String::new() } else { format!(" on node {on}") };
    node.failed(format!("failed{place} with {reason}: {message}"), fix).evidence([evidence])
}

fn waiting_for_node<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let gates: Vec<&str> = pod.items("/spec/schedulingGates").iter().map(|gate| gate.text("/name")).collect();
    if !gates.is_empty() {
        let all = gates.join(", ");
        let text = format!("is not scheduled because of its scheduling gates: {all} (SchedulingGated)");
        let fix = format!("the controller that added {all} has to remove it from spec.schedulingGates");
        return node.blocked(text, fix).evidence([Evidence::field("spec.schedulingGates", &all)]);
    }
    let scheduled = pod.condition("PodScheduled");
    let evidence = scheduled.map(|condition| condition.evidence());
    let node = node.evidence(evidence);
    match scheduled {
        Some(condition) if condition.reason == "Unschedulable" => scheduling::explain(inquiry, pod, node),
        Some(condition) if condition.reason == "SchedulerError" => {
            let text = format!("the scheduler failed: {}", condition.message);
            node.blocked(text, "correct what the message names; the scheduler retries")
        }
        _ => not_seen_by_scheduler(inquiry, pod, node),
    }
}

/// A pod without any report from a scheduler.
fn not_seen_by_scheduler<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    if let Some(event) = inquiry.event(pod, &["FailedScheduling"]) {
        let evidence = inquiry.evidence(&event);
        return scheduling::explain(inquiry, pod, node).evidence([evidence]);
    }
    let scheduler = pod.text("/spec/schedulerName");
    if !matches!(scheduler, "" | "default-scheduler") {
        let text = format!("no scheduler named {scheduler} has picked it up");
        let fix = format!("run {scheduler}, or set spec.schedulerName to default-scheduler");
        return node.blocked(text, fix).evidence([Evidence::field("spec.schedulerName", scheduler)]);
    }
    if let Some(down) = leases::component_down(inquiry, "kube-scheduler") {
        let lease = inquiry.explain_named(&LEASE, Some("kube-system"), "kube-scheduler");
        return node
            .blocked(format!("the scheduler is down: {down}"), "start kube-scheduler")
            .children(lease);
    }
    let age = inquiry.age(pod);
    match age > MOMENT {
        false => node.progressing("was just created, and has not been scheduled yet"),
        true => {
            let text = format!("no scheduler has looked at it for {}", duration(age));
            node.blocked(text, "check that kube-scheduler runs")
        }
    }
}

fn on_node<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    if let Some(lost) = lost_node(inquiry, pod) {
        let name = pod.text("/spec/nodeName");
        let text = format!("runs on node {name}, which is not ready");
        return node.blocked(text, "recover the node, or delete the pod").children([lost]);
    }
    let node = containers::explain(inquiry, pod, node);
    match node.state {
        State::Converged => resized(pod, node),
        _ => node,
    }
}

/// Returns the pod's node if it has failed.
fn lost_node<'a>(inquiry: &Inquiry<'a>, pod: &'a Item) -> Option<Node> {
    if is_ready(pod) {
        return None;
    }
    let host = inquiry.get(&NODE, None, pod.text("/spec/nodeName"));
    if host.is_missing() {
        let reference = crate::model::ObjectRef::new(&NODE, None, pod.text("/spec/nodeName"));
        let text = "the node does not exist any more";
        return Some(
            Node::new(reference).blocked(text, "delete the pod; the pod garbage collector does so too"),
        );
    }
    let host = host.found()?;
    let ready = host.condition("Ready")?;
    (!ready.is_true()).then(|| inquiry.explain(host))
}

/// A running pod whose resources were changed.
fn resized(pod: &Item, node: Node) -> Node {
    let Some(pending) = pod.condition("PodResizePending").filter(|pending| pending.is_true()) else {
        return match pod.condition("PodResizeInProgress") {
            Some(resize) if resize.reason == "Error" => node
                .blocked(format!("its resize failed: {}", resize.message), "correct the requested resources")
                .evidence([resize.evidence()]),
            Some(resize) if resize.is_true() => {
                node.progressing("its containers are being resized").evidence([resize.evidence()])
            }
            _ => node,
        };
    };
    let text = format!("its resize is {}: {}", pending.reason.to_lowercase(), pending.message);
    let fix = match pending.reason {
        "Infeasible" => "the node can never fit it: ask for less, or recreate the pod",
        _ => "free resources on the node; the kubelet retries",
    };
    node.blocked(text, fix).evidence([pending.evidence()])
}

/// Returns the priority of a pod and its PriorityClass.
pub(crate) fn priority(inquiry: &Inquiry<'_>, pod: &Item) -> String {
    let value = pod.number("/spec/priority").unwrap_or_default();
    match pod.text("/spec/priorityClassName") {
        "" => format!("priority {value}"),
        class if inquiry.get(&PRIORITY_CLASS, None, class).is_missing() => {
            format!("priority {value} of PriorityClass {class}, which no longer exists")
        }
        class => format!("priority {value} ({class})"),
    }
}
