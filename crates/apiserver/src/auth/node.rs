//! What nodes may do: look after themselves, and read what the pods on them refer to.
//!
//! What a pod refers to is looked up in the pods of its namespace when a node asks, not kept in a graph.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_store::{ListOptions, Resource, Store};

use super::authorize::{Attributes, Authorizer, Decision, Held};
use super::rbac::{MissingRole, RoleRef, Rule};
use super::{User, bootstrap};
use crate::json::Json;
use crate::kinds::pod::references::{self, MIRROR};
use crate::request::ResourceTarget;

/// Decides about nodes, by which node they are; it has no opinion about other users.
pub struct Nodes {
    store: Arc<dyn Store>,
    /// What every node may do, beside what depends on which node it is.
    rules: Vec<Rule>,
}

const GROUP: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// The name of the node that a user is; `None` for one that is no node.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(PREFIX).filter(|_| user.is_in(GROUP))
}

/// What is decided of a node's request, or what it depends on.
enum Verdict {
    Allow,
    Deny(String),
    /// Allowed if a pod on the node refers to this.
    IfReferred(Referred),
    /// Allowed if a pod on the node refers to the claim that the volume is bound to.
    IfVolumeReferred,
    /// Allowed if the object is this node's own by `spec.nodeName`.
    IfOnNode,
    /// Whatever the rules for all nodes say.
    ByRules,
}

/// What a pod refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Referred {
    Secret,
    ConfigMap,
    Claim,
    DeviceClaim,
    Account,
}

fn deny(reason: &str) -> Verdict {
    Verdict::Deny(reason.into())
}

fn judge(node: &str, verb: &str, target: &ResourceTarget) -> Verdict {
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

/// Which node may be written is for admission to say.
fn own_node(node: &str, verb: &str, name: &str, part: &str) -> Verdict {
    match (part, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Verdict::Allow,
        ("", "get" | "list" | "watch") if name == node => Verdict::Allow,
        ("", "get" | "list" | "watch") => {
            Verdict::Deny(format!("node '{node}' cannot read '{name}', only its own Node object"))
        }
        _ => deny(""),
    }
}

fn pod(node: &str, verb: &str, part: &str, target: &ResourceTarget) -> Verdict {
    match (part, verb) {
        ("", "get") if target.name.is_none() => deny("No Object name found"),
        ("", "get") => Verdict::IfOnNode,
        ("", "list" | "watch") if target.selects("spec.nodeName") == Some(node) => Verdict::Allow,
        ("", "list" | "watch") if target.named().is_some() => Verdict::IfOnNode,
        ("", "list" | "watch") => deny("can only list/watch pods with spec.nodeName field selector"),
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Verdict::Allow,
        _ => deny(""),
    }
}

/// Whose devices a new slice may tell of is for admission to say.
fn slice(node: &str, verb: &str, part: &str, target: &ResourceTarget) -> Verdict {
    match verb {
        _ if !part.is_empty() => deny("cannot authorize ResourceSlice subresources"),
        "create" => Verdict::Allow,
        "get" | "update" | "patch" | "delete" => Verdict::IfOnNode,
        "list" | "watch" | "deletecollection" if target.selects("spec.nodeName") == Some(node) => {
            Verdict::Allow
        }
        "list" | "watch" | "deletecollection" => {
            deny("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => deny(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

/// For which pods a node may ask is for admission to say.
fn certificate_request(node: &str, verb: &str, part: &str, target: &ResourceTarget) -> Verdict {
    match verb {
        _ if !part.is_empty() => {
            deny("nodes may not access the status subresource of PodCertificateRequests")
        }
        "create" => Verdict::Allow,
        "get" if target.named().is_none() => deny("No Object name found"),
        "get" => Verdict::IfOnNode,
        "list" | "watch" if target.selects("spec.nodeName") == Some(node) => Verdict::Allow,
        "list" | "watch" => deny("can only list/watch podcertificaterequests with nodeName field selector"),
        _ => Verdict::Deny(format!("nodes may not {verb} podcertificaterequests")),
    }
}

fn no_relationship(node: &str) -> String {
    format!("no relationship found between node '{node}' and this object")
}

impl Nodes {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, rules: bootstrap::node_rules() }
    }

    async fn decide(&self, node: &str, attributes: &Attributes<'_>) -> Decision {
        let allowed = Decision::allow("");
        let verdict = match attributes.resource {
            Some(target) => judge(node, attributes.verb, target),
            None => Verdict::ByRules,
        };
        let is_allowed = match (verdict, attributes.resource) {
            (Verdict::Allow, _) => true,
            (Verdict::Deny(reason), _) => return Decision::no_opinion(reason),
            (Verdict::IfReferred(referred), Some(target)) => {
                let namespace = target.namespace.as_deref().unwrap_or_default();
                let name = target.named().unwrap_or_default();
                self.is_referred(node, referred, namespace, name).await
                    || referred == Referred::Secret && self.is_for_volume(node, namespace, name).await
            }
            (Verdict::IfVolumeReferred, Some(target)) => {
                let volumes = Resource::new("persistentvolumes");
                match self.read(&volumes, target.named().unwrap_or_default()).await {
                    Some(volume) => self.is_volume_referred(node, &volume).await,
                    None => false,
                }
            }
            (Verdict::IfOnNode, Some(target)) => self.is_on_node(node, target).await,
            _ => {
                let by_rules = self.rules.iter().any(|rule| rule.allows(attributes));
                return if by_rules { allowed } else { Decision::no_opinion("") };
            }
        };
        if is_allowed { allowed } else { Decision::no_opinion(no_relationship(node)) }
    }

    /// Whether a pod on the node refers to this.
    async fn is_referred(&self, node: &str, referred: Referred, namespace: &str, name: &str) -> bool {
        let pods = Resource::new("pods").under(format!("{namespace}/"));
        let Ok(page) = self.store.list(&pods, ListOptions::default()).await else { return false };
        // Most pods are on other nodes; the bytes tell so without reading them.
        let mentioning = page.records.iter().filter(|record| mentions(&record.value, node));
        mentioning
            .filter_map(|record| serde_json::from_slice::<Value>(&record.value).ok())
            .any(|pod| pod.at("spec").text("nodeName") == node && refers(&pod, referred, name))
    }

    async fn is_volume_referred(&self, node: &str, volume: &Value) -> bool {
        match claim_of(volume) {
            Some((namespace, claim)) => self.is_referred(node, Referred::Claim, namespace, claim).await,
            None => false,
        }
    }

    /// Whether a volume of a pod on the node is mounted with this secret.
    async fn is_for_volume(&self, node: &str, namespace: &str, name: &str) -> bool {
        let all = Resource::new("persistentvolumes").all();
        let Ok(page) = self.store.list(&all, ListOptions::default()).await else { return false };
        for record in page.records.iter().filter(|record| mentions(&record.value, name)) {
            let Ok(volume) = serde_json::from_slice::<Value>(&record.value) else { continue };
            if needs_secret(&volume, namespace, name) && self.is_volume_referred(node, &volume).await {
                return true;
            }
        }
        false
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

fn mentions(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Whether a pod refers to something of this name. Mirrors of what a node runs anyway are of its own making.
fn refers(pod: &Value, referred: Referred, name: &str) -> bool {
    let spec = pod.at("spec");
    if pod.at("metadata").at("annotations").has(MIRROR) {
        return false;
    }
    match referred {
        Referred::Account => spec.text("serviceAccountName") == name,
        Referred::Claim => references::claims(pod).iter().any(|claim| claim == name),
        Referred::DeviceClaim => references::device_claims(pod).contains(&name),
        Referred::Secret => references::secrets(spec).contains(&name),
        Referred::ConfigMap => references::config_maps(spec).contains(&name),
    }
}

/// The claim that a volume is bound to: namespace and name.
fn claim_of(volume: &Value) -> Option<(&str, &str)> {
    let claim = volume.at("spec").at("claimRef");
    claim.is_object().then(|| (claim.text("namespace"), claim.text("name")))
}

/// Whether a node needs a secret to mount a volume.
fn needs_secret(volume: &Value, namespace: &str, name: &str) -> bool {
    const REFERENCES: [&str; 4] =
        ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let of_claim = claim_of(volume).map_or("", |(namespace, _)| namespace);
    let is_it = |found: &Value, in_namespace: &str, called: &str| {
        let place = found.text(in_namespace);
        let place = if place.is_empty() { of_claim } else { place };
        found.text(called) == name && place == namespace
    };
    let sources = volume.at("spec").as_object().into_iter().flatten();
    sources.map(|(_, source)| source).any(|source| {
        is_it(source, "secretNamespace", "secretName")
            || REFERENCES.iter().any(|field| is_it(source.at(field), "namespace", "name"))
    })
}

impl Authorizer for Nodes {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        match node_of(attributes.user) {
            Some(node) => Box::pin(self.decide(node, attributes)),
            None => Box::pin(std::future::ready(Decision::no_opinion(""))),
        }
    }

    fn rules<'a>(&'a self, user: &'a User, _: Option<&'a str>) -> BoxFuture<'a, Held> {
        let held = match node_of(user) {
            Some(_) => {
                let why = "node authorizer does not support user rule resolution".into();
                Held { errors: vec![why], is_incomplete: true, ..Held::default() }
            }
            None => Held::default(),
        };
        Box::pin(std::future::ready(held))
    }

    fn role<'a>(&'a self, role: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        Box::pin(std::future::ready(Err(MissingRole::named(role).to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_needs_the_secrets_that_its_node_shows() {
        let volume = |source: Value| {
            let mut spec = json!({"claimRef": {"namespace": "ns", "name": "c"}});
            spec["source"] = source;
            json!({ "spec": spec })
        };
        let own = volume(json!({"secretRef": {"name": "s"}}));
        assert!(needs_secret(&own, "ns", "s") && !needs_secret(&own, "other", "s"));
        let other = volume(json!({"nodeStageSecretRef": {"name": "s", "namespace": "other"}}));
        assert!(needs_secret(&other, "other", "s") && !needs_secret(&other, "ns", "s"));
        let azure = volume(json!({"secretName": "s"}));
        assert!(needs_secret(&azure, "ns", "s"));
        let controllers = volume(json!({"controllerPublishSecretRef": {"name": "s", "namespace": "ns"}}));
        assert!(!needs_secret(&controllers, "ns", "s"));
    }

    #[test]
    fn a_mirror_of_a_pod_gives_its_node_no_rights() {
        let mut pod = json!({"metadata": {}, "spec": {"serviceAccountName": "robot"}});
        assert!(refers(&pod, Referred::Account, "robot"));
        pod["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert!(!refers(&pod, Referred::Account, "robot"));
    }
}
