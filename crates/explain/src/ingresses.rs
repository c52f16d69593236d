//! Ingresses: missing classes, Services, ports and TLS Secrets.

use serde_json::Value;

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{INGRESS_CLASS, SECRET, SERVICE};
use crate::model::{Evidence, Node, ObjectRef, State};
use crate::read::Read;
use crate::services::has_port;
use crate::snapshot::{Item, Lookup};
use crate::text::names;

const OLD_CLASS: &str = "/metadata/annotations/kubernetes.io~1ingress.class";
const DEFAULT: &str = "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class";

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, ingress: &'a Item) -> Node {
    let node = node_of(ingress);
    if let Some(node) = without_class(inquiry, ingress, node.clone()) {
        return node;
    }
    let mut children = backends(inquiry, ingress);
    children.extend(secrets(inquiry, ingress));
    let node = node.children(children);
    if node.worst_child().is_stuck() {
        return node.blocked("some of its backends do not exist", "correct its backends");
    }
    match ingress.has("/status/loadBalancer/ingress") {
        true => node.converged("has an address"),
        false => {
            let class = ingress.text("/spec/ingressClassName");
            let text = format!("has no address: the controller of class {class} has not set one");
            node.blocked(text, "check that the ingress controller runs and accepts the Ingress")
        }
    }
}

/// An Ingress without a controller.
fn without_class<'a>(inquiry: &Inquiry<'a>, ingress: &'a Item, node: Node) -> Option<Node> {
    let class = ingress.text("/spec/ingressClassName");
    let classes = inquiry.snapshot.list(&INGRESS_CLASS, None);
    let known: Vec<&str> = classes.iter().flatten().map(|class| class.name()).collect();
    let shown = if known.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", names(&known, 5))
    };
    if !class.is_empty() {
        let is_missing = inquiry.get(&INGRESS_CLASS, None, class).is_missing();
        let text = format!("its IngressClass {class} does not exist ({shown})");
        let field = Evidence::field("spec.ingressClassName", class);
        return is_missing.then(|| {
            node.blocked(
                text,
                format!("install a controller for class {class}, or correct spec.ingressClassName"),
            )
            .evidence([field])
        });
    }
    if !ingress.text(OLD_CLASS).is_empty() {
        return None;
    }
    let classes = classes?;
    if classes.iter().any(|class| class.text(DEFAULT) == "true") {
        let text = "has no class, because it was created before the default IngressClass";
        return Some(node.blocked(text, "set spec.ingressClassName"));
    }
    let text = format!("has no IngressClass, and none is the default ({shown}): no controller handles it");
    Some(node.blocked(text, "set spec.ingressClassName, or make a class the default"))
}

/// Explains its backend Services, if they are unhealthy.
fn backends<'a>(inquiry: &Inquiry<'a>, ingress: &'a Item) -> Vec<Node> {
    let rules = ingress.items("/spec/rules").iter().flat_map(|rule| rule.items("/http/paths"));
    let paths = rules.map(|path| path.at("/backend/service"));
    let all = std::iter::once(ingress.at("/spec/defaultBackend/service")).chain(paths);
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for backend in all.filter(|backend| !backend.is_null()) {
        if !seen.contains(&backend) && seen.len() < crate::inquiry::MAX_GROUPS {
            seen.push(backend);
            found.extend(self::backend(inquiry, ingress, backend));
        }
    }
    found
}

fn backend<'a>(inquiry: &Inquiry<'a>, ingress: &Item, backend: &Value) -> Option<Node> {
    let name = backend.text("/name");
    let node = Node::new(ObjectRef::new(&SERVICE, ingress.namespace(), name));
    let service = match inquiry.get(&SERVICE, ingress.namespace(), name) {
        Lookup::Missing => {
            let text = format!("the Service {name} does not exist (a backend of Ingress {})", ingress.name());
            return Some(node.blocked(text, "create it, or correct the backend of the Ingress"));
        }
        found => found.found()?,
    };
    let port = backend.at("/port");
    if !has_port(service, port) {
        let wanted = match port.text("/name") {
            "" => port.number("/number").unwrap_or_default().to_string(),
            name => name.to_owned(),
        };
        let text =
            format!("the Service {name} has no port {wanted} (a backend of Ingress {})", ingress.name());
        return Some(node.blocked(text, "correct the port in the Ingress or the Service"));
    }
    Some(inquiry.explain(service))
}

/// Names the TLS Secrets that do not exist.
fn secrets<'a>(inquiry: &Inquiry<'a>, ingress: &'a Item) -> Vec<Node> {
    let all =
        ingress.items("/spec/tls").iter().map(|tls| tls.text("/secretName")).filter(|name| !name.is_empty());
    let wrong = all.filter_map(|name| {
        let node = Node::new(ObjectRef::new(&SECRET, ingress.namespace(), name));
        let found = inquiry.get(&SECRET, ingress.namespace(), name);
        if found.is_missing() {
            let text = format!("the TLS Secret {name} does not exist (Ingress {} uses it)", ingress.name());
            return Some(node.blocked(text, "create it, or let a certificate manager issue it"));
        }
        let secret = found.found()?;
        let is_tls = ["tls.crt", "tls.key"].iter().all(|key| secret.at("/data").get(key).is_some());
        (!is_tls).then(|| {
            let text =
                format!("the Secret {name} has no tls.crt and tls.key (Ingress {} uses it)", ingress.name());
            node.blocked(text, "recreate it with kubectl create secret tls")
        })
    });
    wrong.filter(|node| node.state != State::Converged).take(crate::inquiry::MAX_GROUPS).collect()
}
