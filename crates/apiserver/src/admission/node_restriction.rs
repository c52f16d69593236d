//! Restricts nodes to their own node object, pod status and leases, and restricts what they may change on the node
//! object.

use serde_json::Value;

use super::{Operation, Plugin, Review, node_certificates, node_pods, node_tokens};
use crate::auth::node::node_of;
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata;
use crate::status::Status;
use crate::validation::unified;

pub struct NodeRestriction;

const KUBERNETES: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// The reserved labels that a node may set on itself.
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

    async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        check_request(review, Some(object), old).await
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        // Written objects were checked when mutating.
        match object {
            Some(_) => Ok(()),
            None => check_request(review, None, old).await,
        }
    }
}

async fn check_request(
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    check_node(review, object, old).await.map_err(Status::for_lack_of_rights)
}

async fn check_node(review: &Review<'_>, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
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
        ("", "nodes") => check_node_object(node, name, review, object, old),
        ("", "pods") => return node_pods::check_node(node, review, object, old).await,
        ("", "serviceaccounts") => return node_tokens::check_node(node, review, object).await,
        ("resource.k8s.io", "resourceslices") => check_slice(node, review, object, old),
        ("", "persistentvolumeclaims") if review.subresource != Some(Subresource::Status) => {
            Err("may only update PVC status".into())
        }
        ("", "persistentvolumeclaims") => check_claim(node, object, old),
        ("coordination.k8s.io", "leases") if review.namespace != Some("kube-node-lease") => {
            Err("can only access leases in the \"kube-node-lease\" system namespace".into())
        }
        ("coordination.k8s.io", "leases") if name != node => {
            Err("can only access node lease with the same name as the requesting node".into())
        }
        ("storage.k8s.io", "csinodes") if name != node => {
            Err("can only access CSINode with the same name as the requesting node".into())
        }
        ("certificates.k8s.io", "podcertificaterequests") => {
            return node_certificates::check_node(node, review, object).await;
        }
        _ => Ok(()),
    };
    verdict.map_err(|why: String| review.forbidden(object, why))
}

/// Checks a claim update: nodes may only report the new size of the volume.
fn check_claim(node: &str, object: Option<&Value>, old: Option<&Value>) -> Result<(), String> {
    let rest = |claim: Option<&Value>| {
        let mut claim = claim.cloned().unwrap_or_default();
        for field in ["resourceVersion", "managedFields"] {
            claim.object_mut("metadata").unset(field);
        }
        for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
            claim.object_mut("status").unset(field);
        }
        claim
    };
    let (new, old) = (rest(object), rest(old));
    match new == old {
        true => Ok(()),
        false => Err(format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
            unified(&format!("{old:#}"), &format!("{new:#}"))
        )),
    }
}

/// Checks a slice: nodes may publish only their own devices. Other slice requests depend on existing slices, so the
/// authorizer checks them.
fn check_slice(
    node: &str,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), String> {
    let (slice, what) = match review.operation {
        Operation::Create => (object, "create"),
        Operation::Delete => (old, "delete"),
        _ => return Ok(()),
    };
    match slice.is_some_and(|slice| slice.at("spec").text("nodeName") == node) {
        true => Ok(()),
        false => Err(format!("can only {what} ResourceSlice with the same NodeName as the requesting node")),
    }
}

fn check_node_object(
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

/// Returns the labels that differ, sorted.
fn changed_labels<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let labels = |node: &'a Value| metadata::of(node).at("labels");
    let (new, old) = (labels(new), labels(old));
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|labels| labels.keys());
    let mut changed: Vec<&str> = keys.filter(|key| new.at(key) != old.at(key)).map(String::as_str).collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Whether a label is reserved and not reported by nodes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_sets_its_own_labels_but_not_restricted_ones() {
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
    fn a_node_reports_only_the_size_of_a_claim() {
        let claim = |status: Value| json!({"metadata": {"name": "c"}, "status": status});
        let check_node =
            |new: Value| check_claim("n", Some(&claim(new)), Some(&claim(json!({"phase": "Bound"}))));
        assert_eq!(check_node(json!({"phase": "Bound", "capacity": {"storage": "2Gi"}})), Ok(()));
        assert!(check_node(json!({"phase": "Lost"})).is_err());
    }
}
