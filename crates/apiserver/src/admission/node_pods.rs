//! Restricts what nodes may do with pods: create mirror pods, update pod status, and delete or evict pods.
//!
//! A node may read what its pods refer to, so mirror pods must not refer to anything.

use serde_json::Value;

use super::{Operation, Review};
use crate::json::Json;
use crate::kind::Subresource;
use crate::kinds::pod::references::{MIRROR, config_maps, secrets};
use crate::metadata;
use crate::status::{Named, Status};

pub(super) async fn check_node(
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
            if let Some(why) = mirror_problem(node, pod) {
                return refuse(why);
            }
            check_owner(node, review, pod).await?;
            match referred_kind(pod.at("spec")) {
                Some(kind) => refuse(format!("node {node:?} can not create pods that reference {kind}")),
                None => Ok(()),
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
            match status_problem(node, object.unwrap_or(&Value::Null), old.unwrap_or(&Value::Null)) {
                Some(why) => refuse(why),
                None => Ok(()),
            }
        }
        (Operation::Create, Some(Subresource::Eviction)) => {
            let pod = find(review, &review.name).await?;
            match on_node(Some(&pod)) {
                true => Ok(()),
                false => refuse(format!("node {node} can only evict pods with spec.nodeName set to itself")),
            }
        }
        (Operation::Update, None) => refuse(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        // Connections are left to the authorizer.
        (Operation::Connect, _) => Ok(()),
        (_, Some(subresource)) => {
            let name = subresource.name();
            refuse(format!("unexpected pod subresource {name:?}, only 'status' and 'eviction' are allowed"))
        }
    }
}

/// Reads a pod in the namespace; fails if it does not exist.
pub(super) async fn find(review: &Review<'_>, name: &str) -> Result<Value, Status> {
    let found = review.find_in("", "pods", review.namespace, name).await?;
    found.ok_or_else(|| Status::not_found(Named { group: "", resource: "pods" }, name))
}

/// Returns the first change to a pod's status that a node may not make.
fn status_problem(node: &str, new: &Value, old: &Value) -> Option<String> {
    let claims = |pod: &Value| pod.at("status").list("resourceClaimStatuses").to_vec();
    let extended = |pod: &Value| pod.at("status").at("extendedResourceClaimStatus").clone();
    if metadata::of(new).at("labels") != metadata::of(old).at("labels") {
        Some(format!("node {node:?} cannot update labels through pod status"))
    } else if claims(new) != claims(old) {
        Some(format!("node {node:?} cannot update resource claim statues"))
    } else if extended(new) != extended(old) {
        Some(format!("node {node:?} cannot update extended resource claim status"))
    } else {
        None
    }
}

/// Returns why a node may not create this pod: it may only create mirror pods that it owns.
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

async fn check_owner(node: &str, review: &Review<'_>, pod: &Value) -> Result<(), Status> {
    let owner = metadata::of(pod).list("ownerReferences").first().map_or("", |owner| owner.text("uid"));
    let Some(found) = review.find("", "nodes", node).await? else {
        return Err(Status::not_found(Named { group: "", resource: "nodes" }, node));
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

/// Returns the kind of the first API object that the pod refers to, if any.
fn referred_kind(spec: &Value) -> Option<String> {
    if !spec.text("serviceAccountName").is_empty() {
        return Some("serviceaccounts".into());
    }
    if !secrets(spec).is_empty() {
        return Some("secrets".into());
    }
    if !config_maps(spec).is_empty() {
        return Some("configmaps".into());
    }
    if !spec.list("resourceClaims").is_empty() {
        return Some("resourceclaims".into());
    }
    spec.list("volumes").iter().find_map(volume_kind)
}

fn volume_kind(volume: &Value) -> Option<String> {
    const KINDS: [(&str, &str); 7] = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: [(&str, &str); 5] = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let named = |value: &Value, kinds: &[(&str, &str)]| {
        kinds.iter().find(|(source, _)| value.has(source)).map(|(_, kind)| (*kind).to_owned())
    };
    let sources = volume.at("projected").list("sources");
    named(volume, &KINDS).or_else(|| sources.iter().find_map(|source| named(source, &PROJECTED)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    #[test]
    fn mirror_pods_must_not_reference_objects() {
        let check = |spec: Value, expected: Option<&str>| {
            assert_eq!(referred_kind(&spec).as_deref(), expected, "{spec}")
        };
        check(
            json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "projected": {"sources": [{"downwardAPI": {}}]}}]}),
            None,
        );
        check(json!({"serviceAccountName": "a"}), Some("serviceaccounts"));
        check(json!({"imagePullSecrets": [{"name": "a"}]}), Some("secrets"));
        check(json!({"containers": [{"envFrom": [{"configMapRef": {"name": "a"}}]}]}), Some("configmaps"));
        check(json!({"resourceClaims": [{"name": "a"}]}), Some("resourceclaims"));
        check(
            json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}]}),
            Some("persistentvolumeclaims"),
        );
        let projected = json!({"projected": {"sources": [{"serviceAccountToken": {}}]}});
        check(json!({"volumes": [projected]}), Some("serviceaccounts (via projected volumes)"));
    }

    #[test]
    fn a_node_reports_the_status_of_its_pods_but_not_of_their_claims() {
        let old = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Pending"}});
        let problem = |change: Value| {
            let mut new = old.clone();
            new["status"] = change;
            status_problem("n", &new, &old)
        };
        assert_eq!(problem(json!({"phase": "Running"})), None);
        let claims = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "c"}]});
        assert_eq!(problem(claims).as_deref(), Some("node \"n\" cannot update resource claim statues"));
    }
}
