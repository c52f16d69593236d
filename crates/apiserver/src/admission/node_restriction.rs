//! A node changes nothing but itself, its pods' states and its leases, and of itself not everything.

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::auth::node::node_of;
use crate::json::Json;
use crate::kind::Subresource;
use crate::metadata;
use crate::status::Status;

pub struct NodeRestriction;

const MIRROR: &str = "kubernetes.io/config.mirror";
const KUBERNETES: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Labels of Kubernetes' own that a node may give itself.
const NODE_LABELS: [&str; 14] = [
    "kubernetes.io/hostname",
    "kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
];
const NODE_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

impl Plugin for NodeRestriction {
    fn handles(&self, review: &Review<'_>) -> bool {
        node_of(review.user).is_some()
    }

    fn mutate<'a>(
        &'a self,
        review: &'a Review<'_>,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(judge(review, Some(object), old))
    }

    fn check<'a>(
        &'a self,
        review: &'a Review<'_>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        // What is written was judged on the way in.
        match object {
            Some(_) => Box::pin(std::future::ready(Ok(()))),
            None => Box::pin(judge(review, None, old)),
        }
    }
}

async fn judge(review: &Review<'_>, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
    let node = node_of(review.user).unwrap_or_default();
    if node.is_empty() {
        let why = format!("could not determine node from user {:?}", review.user.name);
        return Err(review.forbidden(object, why));
    }
    let kind = &review.served.kind;
    let name = if review.name.is_empty() {
        object.map(metadata::of).unwrap_or(&Value::Null).text("name")
    } else {
        review.name.as_str()
    };
    let verdict = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "nodes") => judge_node(node, name, review, object, old),
        ("", "pods") => return judge_pod(node, review, object, old).await,
        ("", "persistentvolumeclaims") if review.subresource != Some(Subresource::Status) => {
            Err("may only update PVC status".into())
        }
        ("coordination.k8s.io", "leases") if review.namespace != Some("kube-node-lease") => {
            Err("can only access leases in the \"kube-node-lease\" system namespace".into())
        }
        ("coordination.k8s.io", "leases") if name != node => {
            Err("can only access node lease with the same name as the requesting node".into())
        }
        ("storage.k8s.io", "csinodes") if name != node => {
            Err("can only access CSINode with the same name as the requesting node".into())
        }
        _ => Ok(()),
    };
    verdict.map_err(|why: String| review.forbidden(object, why))
}

fn judge_node(
    node: &str,
    name: &str,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), String> {
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let Some(new) = object else { return Ok(()) };
    let old = old.filter(|_| review.operation == Operation::Update);
    if let Some(old) = old {
        if new.at("spec").list("taints") != old.at("spec").list("taints") {
            return Err(format!("node {node:?} is not allowed to modify taints"));
        }
        if metadata::of(new).list("ownerReferences") != metadata::of(old).list("ownerReferences") {
            return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
        }
    }
    let changed = changed_labels(new, old.unwrap_or(&Value::Null));
    let forbidden: Vec<&str> = changed.into_iter().filter(|label| is_forbidden(label)).collect();
    let listed = forbidden.join(", ");
    match (forbidden.is_empty(), old) {
        (true, _) => Ok(()),
        (false, None) => Err(format!("node {node:?} is not allowed to set the following labels: {listed}")),
        (false, Some(_)) => Err(format!("is not allowed to modify labels: {listed}")),
    }
}

/// The labels that differ, sorted.
fn changed_labels<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let labels = |node: &'a Value| metadata::of(node).at("labels");
    let (new, old) = (labels(new), labels(old));
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|labels| labels.keys());
    let mut changed: Vec<&str> = keys.filter(|key| new.at(key) != old.at(key)).map(String::as_str).collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Labels of Kubernetes' own, but for those that nodes report.
fn is_forbidden(label: &str) -> bool {
    let Some((namespace, _)) = label.split_once('/') else { return false };
    let below = |domain: &str| {
        namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    if below("node-restriction.kubernetes.io") {
        return true;
    }
    let is_reported = NODE_LABELS.contains(&label) || NODE_NAMESPACES.iter().any(|domain| below(domain));
    KUBERNETES.iter().any(|domain| below(domain)) && !is_reported
}

async fn judge_pod(
    node: &str,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let refuse = |why: String| Err(review.forbidden(object.or(old), why));
    let on_node = |pod: Option<&Value>| pod.is_some_and(|pod| pod.at("spec").text("nodeName") == node);
    match (review.operation, review.subresource) {
        (Operation::Create, None) => {
            let pod = object.unwrap_or(&Value::Null);
            match mirror_problem(node, pod) {
                Some(why) => refuse(why),
                None => judge_owner(node, review, pod).await,
            }
        }
        (Operation::Delete, None) if on_node(old) => Ok(()),
        (Operation::Delete, None) => {
            refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        (Operation::Update, Some(Subresource::Status)) if !on_node(old) => refuse(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        )),
        (Operation::Update, Some(Subresource::Status)) => {
            let labels = |pod: Option<&Value>| pod.map(|pod| metadata::of(pod).at("labels").clone());
            match labels(object) == labels(old) {
                true => Ok(()),
                false => refuse(format!("node {node:?} cannot update labels through pod status")),
            }
        }
        (Operation::Create, Some(Subresource::Eviction)) => {
            let pod = review.find_in("", "pods", review.namespace, &review.name).await?;
            match on_node(pod.as_ref()) {
                true => Ok(()),
                false => refuse(format!("node {node} can only evict pods with spec.nodeName set to itself")),
            }
        }
        (Operation::Update, None) => refuse(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        (_, Some(subresource)) => {
            let name = subresource.name();
            refuse(format!("unexpected pod subresource {name:?}, only 'status' and 'eviction' are allowed"))
        }
    }
}

/// Why a pod is not one that a node may create: a mirror of what it runs anyway, owned by it.
fn mirror_problem(node: &str, pod: &Value) -> Option<String> {
    let meta = metadata::of(pod);
    if !meta.at("annotations").has(MIRROR) {
        let why =
            format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods");
        return Some(why);
    }
    if pod.at("spec").text("nodeName") != node {
        return Some(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let own = |owner: &Value| {
        owner.text("apiVersion") == "v1" && owner.text("kind") == "Node" && owner.text("name") == node
    };
    match meta.list("ownerReferences") {
        [owner] if !own(owner) => {
            Some(format!("node {node:?} can only create pods with an owner reference set to itself"))
        }
        [owner] if !owner.flag("controller") => Some(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        )),
        [owner] if owner.flag("blockOwnerDeletion") => {
            Some(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"))
        }
        [_] => None,
        [] => Some(format!("node {node:?} can only create pods with an owner reference set to itself")),
        _ => Some(format!("node {node:?} can only create pods with a single owner reference set to itself")),
    }
}

async fn judge_owner(node: &str, review: &Review<'_>, pod: &Value) -> Result<(), Status> {
    let owner = metadata::of(pod).list("ownerReferences").first().map_or("", |owner| owner.text("uid"));
    let Some(found) = review.find("", "nodes", node).await? else {
        return Err(Status::not_found(crate::status::Named { group: "", resource: "nodes" }, node));
    };
    let uid = metadata::of(&found).text("uid");
    match owner == uid {
        true => Ok(()),
        false => {
            let why = format!("node {node} UID mismatch: expected {owner} got {uid}");
            Err(review.forbidden(Some(pod), why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_reports_what_it_is_and_not_what_it_is_for() {
        for (label, forbidden) in [
            ("app", false),
            ("example.com/x", false),
            ("kubernetes.io/hostname", false),
            ("node.kubernetes.io/anything", false),
            ("a.kubelet.kubernetes.io/x", false),
            ("kubernetes.io/role", true),
            ("sub.k8s.io/x", true),
            ("node-restriction.kubernetes.io/x", true),
        ] {
            assert_eq!(is_forbidden(label), forbidden, "{label}");
        }
    }

    #[test]
    fn a_node_creates_only_mirrors_that_it_owns() {
        let mut pod = json!({"metadata": {}, "spec": {"nodeName": "n"}});
        let problem = |pod: &Value| mirror_problem("n", pod).unwrap_or_default();
        assert!(problem(&pod).contains("can only create mirror pods"));
        pod["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert!(problem(&pod).contains("an owner reference set to itself"));
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "controller": true});
        pod["metadata"]["ownerReferences"] = json!([owner]);
        assert_eq!(problem(&pod), "");
        pod["spec"]["nodeName"] = "other".into();
        assert!(problem(&pod).contains("spec.nodeName set to itself"));
    }
}
