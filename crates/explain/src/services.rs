//! Services: selectors that match no pod, unready pods, ports that do not exist, load balancers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint::Labels;

use crate::creation::MOMENT;
use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{DAEMON_SET, DEPLOYMENT, ENDPOINT_SLICE, ENDPOINTS, LEASE, POD, STATEFUL_SET};
use crate::leases;
use crate::model::{Evidence, Node};
use crate::pods;
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::{count, names};

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, service: &'a Item) -> Node {
    let node = node_of(service);
    if service.text("/spec/type") == "ExternalName" {
        return node.converged(format!("leads to {}", service.text("/spec/externalName")));
    }
    let selector = service.pairs("/spec/selector");
    if selector.is_empty() {
        return without_selector(inquiry, service, node);
    }
    let node = node.evidence([Evidence::field("spec.selector", written(&selector))]);
    let Some(all) = inquiry.snapshot.list(&POD, service.namespace()) else {
        return node.unknown("its pods cannot be read");
    };
    let selected: Vec<&'a Item> = all.iter().filter(|pod| matches(pod, &selector)).copied().collect();
    if selected.is_empty() {
        return match workload(inquiry, service, &selector) {
            Some(workload) => without_pods(inquiry, node, workload),
            None => selects_nothing(node, &selector, &all),
        };
    }
    let has_matches = count(selected.len(), "pod");
    let selected: Vec<&'a Item> = selected.into_iter().filter(|pod| !pods::has_ended(pod)).collect();
    if selected.is_empty() {
        let text = format!("has no endpoints: its selector matches {has_matches}, which ended");
        return node.blocked(text, "run the pods again: a Service routes only to running pods");
    }
    let is_ready = |pod: &&&Item| pods::is_ready(pod) && !pod.object.meta().is_being_deleted();
    let ready = selected.iter().filter(is_ready).count();
    if ready == 0 && !service.flag("/spec/publishNotReadyAddresses") {
        let text = format!("has no endpoints: none of its {} is ready", count(selected.len(), "pod"));
        return node.blocked(text, "make its pods ready").children(pods::explain_all(inquiry, &selected));
    }
    if let Some(node) = wrong_port(service, node.clone(), &selected) {
        return node;
    }
    if selected.iter().any(|pod| has_been_ready(inquiry, pod)) && !has_endpoints(inquiry, service) {
        return without_endpoints(inquiry, node);
    }
    let node = node.children(pods::explain_all(inquiry, &selected));
    load_balancer(inquiry, service, node, format!("{ready} of {} ready", count(selected.len(), "pod")))
}

/// Whether a pod has been ready for long enough to be an endpoint.
fn has_been_ready(inquiry: &Inquiry<'_>, pod: &Item) -> bool {
    let ready = pod.condition("Ready").filter(|ready| ready.is_true());
    let since = ready.and_then(|ready| ready.time);
    since.is_some_and(|since| inquiry.now.duration_since(since).as_secs() > MOMENT)
}

/// Whether an EndpointSlice of a Service lists an endpoint. True if the slices cannot be read.
fn has_endpoints(inquiry: &Inquiry<'_>, service: &Item) -> bool {
    let Some(slices) = inquiry.snapshot.list(&ENDPOINT_SLICE, service.namespace()) else { return true };
    let mut own = slices
        .iter()
        .filter(|slice| slice.object.meta().label("kubernetes.io/service-name") == Some(service.name()));
    own.any(|slice| slice.has("/endpoints"))
}

/// A Service with ready pods, but without endpoints from a controller.
fn without_endpoints<'a>(inquiry: &Inquiry<'a>, node: Node) -> Node {
    let text = "its pods are ready, but no EndpointSlice lists them";
    match leases::component_down(inquiry, "kube-controller-manager") {
        Some(down) => {
            let lease = inquiry.explain_named(&LEASE, Some("kube-system"), "kube-controller-manager");
            node.blocked(format!("{text}: {down}"), "start kube-controller-manager").children(lease)
        }
        None => node.blocked(text, "check that the endpointslice controller runs"),
    }
}

fn written(labels: &[(&str, &str)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(",")
}

fn matches(pod: &Item, selector: &[(&str, &str)]) -> bool {
    let meta = pod.object.meta();
    selector.iter().all(|(key, value)| meta.label(key) == Some(value))
}

/// A Service whose endpoints are written by hand.
fn without_selector<'a>(inquiry: &Inquiry<'a>, service: &'a Item, node: Node) -> Node {
    let slices = inquiry.list(&ENDPOINT_SLICE, service.namespace());
    let own = slices
        .iter()
        .filter(|slice| slice.object.meta().label("kubernetes.io/service-name") == Some(service.name()));
    let has_slice = own.into_iter().any(|slice| slice.has("/endpoints"));
    let endpoints = inquiry.get(&ENDPOINTS, service.namespace(), service.name());
    match has_slice || endpoints.found().is_some_and(|found| found.has("/subsets")) {
        true => node.converged("has endpoints that are written by hand"),
        false => node.blocked(
            "has no selector, and no endpoints were written for it",
            "add a selector, or create an EndpointSlice for it",
        ),
    }
}

/// Returns a workload whose pods a selector would match.
fn workload<'a>(inquiry: &Inquiry<'a>, service: &Item, selector: &[(&str, &str)]) -> Option<&'a Item> {
    let kinds = [DEPLOYMENT, STATEFUL_SET, DAEMON_SET];
    let mut all = kinds.iter().flat_map(|kind| inquiry.list(kind, service.namespace()));
    all.find(|workload| {
        let labels = workload.pairs("/spec/template/metadata/labels");
        selector.iter().all(|label| labels.contains(label))
    })
}

/// A Service for a workload without pods.
fn without_pods<'a>(inquiry: &Inquiry<'a>, node: Node, workload: &'a Item) -> Node {
    let (kind, name) = (&workload.kind.kind, workload.name());
    if workload.number("/spec/replicas") == Some(0) {
        let fix = format!("kubectl scale {}/{name} --replicas=1", kind.to_lowercase());
        return node.blocked(format!("has no endpoints: {kind} {name} is scaled to 0"), fix);
    }
    let child = inquiry.explain(workload);
    let text = format!("has no endpoints: {kind} {name} has no pods");
    match child.state.is_stuck() {
        true => node.blocked(text, format!("make {kind} {name} create pods")).children([child]),
        false => node.progressing(text).children([child]),
    }
}

/// Returns the labels that are closest to a selector that matches nothing.
fn selects_nothing(node: Node, selector: &[(&str, &str)], all: &[&Item]) -> Node {
    let wanted = written(selector);
    let closest = closest(selector, all);
    let text = format!("selects no pods: no pod has the labels {wanted}");
    let Some((pod, differences)) = closest else {
        return node.blocked(text, "create pods with these labels, or correct spec.selector");
    };
    let text = format!("{text}; the closest is pod {} with {}", pod.name(), differences.join(", "));
    node.blocked(text, "correct spec.selector, or the labels of the pods")
}

/// Returns the pod that matches most of a selector, or has the most similar labels, and how it differs.
fn closest<'a>(selector: &[(&str, &str)], all: &[&'a Item]) -> Option<(&'a Item, Vec<String>)> {
    let score = |pod: &&Item| -> usize {
        let labels = &pod.object.meta();
        selector.iter().map(|(key, value)| likeness(key, value, labels)).sum()
    };
    // The pods of a workload share labels, which are compared once.
    let distinct: BTreeMap<&Labels, &'a Item> =
        all.iter().rev().map(|pod| (&pod.object.meta().labels, *pod)).collect();
    let best = distinct.into_values().max_by_key(|pod| (score(pod), std::cmp::Reverse(pod.name())))?;
    if score(&best) == 0 {
        return None;
    }
    let labels = best.object.meta();
    let differs = selector.iter().filter(|(key, value)| labels.label(key) != Some(value));
    let shown = differs.map(|(key, _)| match (labels.label(key), similar_key(key, labels)) {
        (Some(value), _) => format!("{key}={value}"),
        (None, Some((other, value))) => format!("{other}={value} in place of {key}"),
        (None, None) => format!("no label {key}"),
    });
    Some((best, shown.collect()))
}

/// How similar a pod's labels are to a selector's: the same, the same key, a similar value, a similar key.
fn likeness(key: &str, value: &str, meta: &setpoint::Metadata) -> usize {
    match meta.label(key) {
        Some(found) if found == value => 8,
        Some(found) if is_similar(found, value) => 6,
        Some(_) => 2,
        None => similar_key(key, meta).map_or(0, |(_, found)| if found == value { 5 } else { 1 }),
    }
}

fn similar_key<'a>(key: &str, meta: &'a setpoint::Metadata) -> Option<(&'a str, &'a str)> {
    let short = |key: &str| key.rsplit('/').next().unwrap_or_default().to_lowercase();
    meta.labels.iter().find(|(other, _)| is_similar(&short(other), &short(key)))
}

/// Whether two words differ by a few letters, or one contains the other.
fn is_similar(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    if one.is_empty() || other.is_empty() {
        return false;
    }
    one.contains(&other) || other.contains(&one) || distance(&one, &other) <= 2
}

/// The number of letters to insert, delete or replace. Labels have at most 63.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for column in 0..other.len() {
            let replaced = diagonal + usize::from(letter != other[column]);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// A Service with a named target port that its pods lack.
fn wrong_port(service: &Item, node: Node, selected: &[&Item]) -> Option<Node> {
    for port in service.items("/spec/ports") {
        let Value::String(wanted) = port.at("/targetPort") else { continue };
        let has = |pod: &&&Item| port_names(pod).contains(wanted.as_str());
        if selected.iter().any(|pod| has(&pod)) {
            continue;
        }
        let known: BTreeSet<&str> = selected.iter().flat_map(|pod| port_names(pod)).collect();
        let known: Vec<&str> = known.into_iter().collect();
        let shown = if known.is_empty() {
            "they have no named ports".to_owned()
        } else {
            format!("they have {}", names(&known, 5))
        };
        let text = format!("its target port {wanted} does not exist in its pods: {shown}");
        let field = Evidence::field("spec.ports[].targetPort", wanted);
        return Some(
            node.blocked(text, "correct the targetPort, or name the port in the containers")
                .evidence([field]),
        );
    }
    None
}

fn port_names(pod: &Item) -> BTreeSet<&str> {
    let containers = pod.items("/spec/containers").iter().chain(pod.items("/spec/initContainers"));
    let ports = containers.flat_map(|container| container.items("/ports"));
    ports.map(|port| port.text("/name")).filter(|name| !name.is_empty()).collect()
}

fn load_balancer<'a>(inquiry: &Inquiry<'a>, service: &'a Item, node: Node, summary: String) -> Node {
    if service.text("/spec/type") != "LoadBalancer" || service.has("/status/loadBalancer/ingress") {
        return node.converged(summary);
    }
    let event = inquiry
        .event(service, &["SyncLoadBalancerFailed", "CreatingLoadBalancerFailed", "UnAvailableLoadBalancer"]);
    let said = event.map(|event| format!(": {}", event.message())).unwrap_or_default();
    let class = service.text("/spec/loadBalancerClass");
    let fix = match class {
        "" => "run a cloud controller manager or another load balancer (on setpoint: --load-balancer-range), or use NodePort".to_owned(),
        class => format!("run the controller of the load balancer class {class}"),
    };
    let pending = Evidence::field("status.loadBalancer", "no address");
    node.blocked(format!("has no external address, no load balancer was set up for it{said}"), fix)
        .root()
        .evidence([pending])
        .evidence(event.map(|event| inquiry.evidence(&event)))
}

/// Whether a Service has a port with this name or number.
pub(crate) fn has_port(service: &Item, port: &Value) -> bool {
    let mut ports = service.items("/spec/ports").iter();
    match (port.text("/name"), port.number("/number")) {
        ("", Some(number)) => ports.any(|one| one.number("/port") == Some(number)),
        (name, _) => ports.any(|one| one.text("/name") == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_found() {
        assert_eq!((distance("web", "wbe"), distance("", "ab"), distance("kitten", "sitting")), (2, 2, 3));
        assert!(is_similar("frontend", "front-end") && is_similar("web", "web-v2"));
        assert!(!is_similar("database", "frontend"));
    }
}
