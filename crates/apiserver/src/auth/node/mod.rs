//! The node authorizer: nodes may manage themselves and read what their pods refer to.
//!
//! The references are kept in a [`Graph`], so decisions do not read any pods.

mod graph;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_store::{Resource, Store};

use super::authorize::{Attributes, Authorizer, Decision, UserRules};
use super::rbac::{MissingRole, RoleRef, Rule};
use super::store_view::StoreView;
use super::{User, bootstrap};
use crate::json::Json;
use crate::request::ResourceTarget;

use graph::{Graph, Referred};

/// Authorizes nodes by their identity; has no opinion on other users.
pub struct Nodes {
    store: Arc<dyn Store>,
    graph: StoreView<Graph>,
    /// The rules for every node, regardless of its identity.
    rules: Vec<Rule>,
}

const GROUP: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// Returns the node name of a user; `None` if the user is not a node. The name may be empty: such a user is a node
/// without any rights of a node.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(PREFIX).filter(|_| user.is_in(GROUP))
}

/// The verdict on a node's request, or what it depends on.
enum Verdict {
    Allow,
    Deny(String),
    /// Allowed if a pod on the node refers to the object.
    IfReferred(Referred),
    /// Allowed if a pod on the node refers to the claim that the volume is bound to.
    IfVolumeReferred,
    /// Allowed if the object's `spec.nodeName` is this node.
    IfOnNode,
    /// Decided by the rules for all nodes.
    ByRules,
}

fn deny(reason: &str) -> Verdict {
    Verdict::Deny(reason.into())
}

fn evaluate(node: &str, verb: &str, target: &ResourceTarget) -> Verdict {
    let part = target.subresource.as_deref().unwrap_or_default();
    let name = target.named().unwrap_or_default();
    match (target.group.as_str(), target.resource.as_str()) {
        ("", "secrets") => readable(verb, part, target, Referred::Secret),
        ("", "configmaps") => readable(verb, part, target, Referred::ConfigMap),
        ("", "persistentvolumeclaims") => match (part, verb) {
            ("status", "update" | "patch") | ("", "get") => named(name, Referred::Claim),
            ("status", _) => deny("can only get/update/patch this type"),
            ("", _) => deny("can only get individual resources of this type"),
            _ => deny("cannot get subresource"),
        },
        ("", "persistentvolumes") | ("resource.k8s.io", "resourceclaims") if verb != "get" => {
            deny("can only get individual resources of this type")
        }
        ("", "persistentvolumes") | ("resource.k8s.io", "resourceclaims") if !part.is_empty() => {
            deny("cannot get subresource")
        }
        ("", "persistentvolumes") => Verdict::IfVolumeReferred,
        ("resource.k8s.io", "resourceclaims") => named(name, Referred::DeviceClaim),
        ("resource.k8s.io", "resourceslices") => slice(node, verb, part, target),
        ("storage.k8s.io", "volumeattachments") if verb == "get" && part.is_empty() => Verdict::IfOnNode,
        ("storage.k8s.io", "volumeattachments") => deny("can only get individual resources of this type"),
        ("", "serviceaccounts") => match (verb, part) {
            ("get", "") => readable(verb, part, target, Referred::Account),
            ("create", "token") if !name.is_empty() => named(name, Referred::Account),
            ("create", "token") => deny("can only create tokens for individual service accounts"),
            ("create", _) if !name.is_empty() => deny("can only create token subresource of serviceaccount"),
            _ => deny("can only create tokens for individual service accounts"),
        },
        ("coordination.k8s.io", "leases") => lease(node, verb, name, target),
        ("storage.k8s.io", "csinodes") => csi_node(node, verb, name, part),
        ("", "nodes") => own_node(node, verb, name, part),
        ("", "pods") => pod(node, verb, part, target),
        ("certificates.k8s.io", "podcertificaterequests") => certificate_request(node, verb, part, target),
        _ => Verdict::ByRules,
    }
}

fn readable(verb: &str, part: &str, target: &ResourceTarget, referred: Referred) -> Verdict {
    match verb {
        _ if !matches!(verb, "get" | "list" | "watch") => deny("can only read resources of this type"),
        _ if !part.is_empty() => deny("cannot read subresource"),
        _ if target.namespace.is_none() => deny("can only read namespaced object of this type"),
        _ => named(target.named().unwrap_or_default(), referred),
    }
}

fn named(name: &str, referred: Referred) -> Verdict {
    if name.is_empty() { deny("No Object name found") } else { Verdict::IfReferred(referred) }
}

fn lease(node: &str, verb: &str, name: &str, target: &ResourceTarget) -> Verdict {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return deny("can only get, create, update, patch, or delete a node lease");
    }
    if target.namespace.as_deref() != Some(LEASES) {
        return Verdict::Deny(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    match verb == "create" || name == node {
        true => Verdict::Allow,
        false => deny("can only access node lease with the same name as the requesting node"),
    }
}

fn csi_node(node: &str, verb: &str, name: &str, part: &str) -> Verdict {
    match verb {
        "get" | "create" | "update" | "patch" | "delete" if !part.is_empty() => {
            deny("cannot authorize CSINode subresources")
        }
        "create" => Verdict::Allow,
        "get" | "update" | "patch" | "delete" if name == node => Verdict::Allow,
        "get" | "update" | "patch" | "delete" => {
            deny("can only access CSINode with the same name as the requesting node")
        }
        _ => deny("can only get, create, update, patch, or delete a CSINode"),
    }
}

/// Authorizes requests for nodes. Admission decides which node may be written.
fn own_node(node: &str, verb: &str, name: &str, part: &str) -> Verdict {
    match (part, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Verdict::Allow,
        ("", "get" | "list" | "watch") if name == node => Verdict::Allow,
        ("", "get" | "list" | "watch") => {
            let what = if name.is_empty() { "all nodes".to_owned() } else { format!("'{name}'") };
            Verdict::Deny(format!("node '{node}' cannot read {what}, only its own Node object"))
        }
        _ => deny(""),
    }
}

fn pod(node: &str, verb: &str, part: &str, target: &ResourceTarget) -> Verdict {
    match (part, verb) {
        ("", "get") if target.name.is_none() => deny("No Object name found"),
        ("", "get") => Verdict::IfOnNode,
        ("", "list" | "watch") if target.selects("spec.nodeName", node) => Verdict::Allow,
        ("", "list" | "watch") if target.named().is_some() => Verdict::IfOnNode,
        ("", "list" | "watch") => deny("can only list/watch pods with spec.nodeName field selector"),
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Verdict::Allow,
        _ => deny(""),
    }
}

/// Authorizes requests for slices. Admission decides whose devices a new slice may list.
fn slice(node: &str, verb: &str, part: &str, target: &ResourceTarget) -> Verdict {
    match verb {
        _ if !part.is_empty() => deny("cannot authorize ResourceSlice subresources"),
        "create" => Verdict::Allow,
        "get" | "update" | "patch" | "delete" => Verdict::IfOnNode,
        "list" | "watch" | "deletecollection" if target.selects("spec.nodeName", node) => Verdict::Allow,
        "list" | "watch" | "deletecollection" => {
            deny("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => deny(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

/// Authorizes certificate requests. Admission decides for which pods a node may make them.
fn certificate_request(node: &str, verb: &str, part: &str, target: &ResourceTarget) -> Verdict {
    match verb {
        _ if !part.is_empty() => {
            deny("nodes may not access the status subresource of PodCertificateRequests")
        }
        "create" => Verdict::Allow,
        "get" if target.named().is_none() => deny("No Object name found"),
        "get" => Verdict::IfOnNode,
        "list" | "watch" if target.selects("spec.nodeName", node) => Verdict::Allow,
        "list" | "watch" => deny("can only list/watch podcertificaterequests with nodeName field selector"),
        _ => Verdict::Deny(format!("nodes may not {verb} podcertificaterequests")),
    }
}

fn no_relationship(node: &str) -> String {
    format!("no relationship found between node '{node}' and this object")
}

impl Nodes {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_rules(store, bootstrap::node_rules())
    }

    /// Like `new`, but with the node rules for these features.
    pub(super) fn with_rules(store: Arc<dyn Store>, rules: Vec<Rule>) -> Self {
        Self { graph: StoreView::new(store.clone()), store, rules }
    }

    async fn decide(&self, node: &str, attributes: &Attributes<'_>) -> Decision {
        let allowed = Decision::allow("");
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {:?}", attributes.user.name));
        }
        let verdict = match attributes.resource {
            Some(target) => evaluate(node, attributes.verb, target),
            None => Verdict::ByRules,
        };
        let is_allowed = match (verdict, attributes.resource) {
            (Verdict::Allow, _) => true,
            (Verdict::Deny(reason), _) => return Decision::no_opinion(reason),
            (Verdict::IfReferred(referred), Some(target)) => {
                let namespace = target.namespace.as_deref().unwrap_or_default();
                let name = target.named().unwrap_or_default();
                self.has(|graph| graph.refers(node, referred, namespace, name)).await
            }
            (Verdict::IfVolumeReferred, Some(target)) => {
                let name = target.named().unwrap_or_default();
                self.has(|graph| graph.mounts(node, name)).await
            }
            (Verdict::IfOnNode, Some(target)) => self.is_on_node(node, target).await,
            _ => {
                let by_rules = self.rules.iter().any(|rule| rule.allows(attributes));
                return if by_rules { allowed } else { Decision::no_opinion("") };
            }
        };
        if is_allowed { allowed } else { Decision::no_opinion(no_relationship(node)) }
    }

    /// Queries the graph. If it cannot be loaded, no relationship exists.
    async fn has(&self, relationship: impl FnOnce(&Graph) -> bool) -> bool {
        self.graph.with(relationship).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the objects that pods reference");
            false
        })
    }

    async fn read(&self, resource: &Resource, path: &str) -> Option<Value> {
        let found = self.store.get(&resource.key(path.to_owned()), None).await;
        found.ok().flatten().and_then(|record| serde_json::from_slice(&record.value).ok())
    }

    async fn is_on_node(&self, node: &str, target: &ResourceTarget) -> bool {
        let stored_as = match target.group.as_str() {
            "" => target.resource.clone(),
            group => format!("{group}/{}", target.resource),
        };
        let name = target.named().unwrap_or_default();
        let path =
            target.namespace.as_ref().map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let object = self.read(&Resource::new(stored_as), &path).await;
        object.is_some_and(|object| object.at("spec").text("nodeName") == node)
    }
}

impl Authorizer for Nodes {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        match node_of(attributes.user) {
            Some(node) => Box::pin(self.decide(node, attributes)),
            None => Box::pin(std::future::ready(Decision::no_opinion(""))),
        }
    }

    fn rules<'a>(&'a self, user: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        let held = match node_of(user) {
            Some(_) => {
                let why = "node authorizer does not support user rule resolution".into();
                UserRules { errors: vec![why], is_incomplete: true, ..UserRules::default() }
            }
            None => UserRules::default(),
        };
        Box::pin(std::future::ready(held))
    }

    fn role<'a>(&'a self, role: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        Box::pin(std::future::ready(Err(MissingRole::named(role).to_string())))
    }
}
