//! Allows nodes to request certificates only for pods that run on them.

use serde_json::Value;

use super::{Operation, Review};
use crate::json::Json;
use crate::kinds::pod::references::MIRROR;
use crate::metadata;
use crate::status::Status;

/// Why a node may not request a certificate.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Forbidden(String),
    /// The request does not match the current objects; a retry may succeed.
    NotNow(String),
}

/// The objects that a request names, if they exist.
#[derive(Default)]
struct Named {
    node: Option<Value>,
    pod: Option<Value>,
    account: Option<Value>,
}

pub(super) async fn check_node(
    node: &str,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<(), Status> {
    let refuse = |why: String| Err(review.forbidden(object, why));
    if review.operation != Operation::Create {
        let operation = if review.operation == Operation::Update { "UPDATE" } else { "DELETE" };
        return refuse(format!("unexpected operation {operation}"));
    }
    if let Some(subresource) = review.subresource {
        return refuse(format!("unexpected subresource {}", subresource.name()));
    }
    let request = object.unwrap_or(&Value::Null);
    let (spec, namespace) = (request.at("spec"), review.namespace);
    let named = Named {
        node: review.find("", "nodes", spec.text("nodeName")).await?,
        pod: review.find_in("", "pods", namespace, spec.text("podName")).await?,
        account: review.find_in("", "serviceaccounts", namespace, spec.text("serviceAccountName")).await?,
    };
    match problem(node, namespace.unwrap_or_default(), spec, &named) {
        Ok(()) => Ok(()),
        Err(Problem::Forbidden(why)) => refuse(why),
        Err(Problem::NotNow(why)) => Err(Status::unknown(why)),
    }
}

fn problem(node: &str, namespace: &str, spec: &Value, named: &Named) -> Result<(), Problem> {
    let name = spec.text("nodeName");
    if name != node {
        return Err(Problem::Forbidden(format!(
            "PodCertificateRequest.Spec.NodeName={name:?}, which is not the requesting node {node:?}"
        )));
    }
    let uid = |object: &Value| metadata::of(object).text("uid").to_owned();
    let found = uid(there(named.node.as_ref(), ("node", "node"), name, name)?);
    let asked = spec.text("nodeUID");
    let pod_path = format!("{namespace}/{}", spec.text("podName"));
    if asked != found {
        return Err(Problem::NotNow(format!(
            "PodCertificateRequest for pod {pod_path:?} names node UID {asked:?}, inconsistent with the running node ({found:?})"
        )));
    }
    check_pod(there(named.pod.as_ref(), ("pod", "pod"), &pod_path, spec.text("podName"))?, &pod_path, spec)?;

    let account = spec.text("serviceAccountName");
    let path = format!("{namespace}/{account}");
    let found = uid(there(named.account.as_ref(), ("service account", "serviceaccount"), &path, account)?);
    let asked = spec.text("serviceAccountUID");
    match asked == found {
        true => Ok(()),
        false => Err(Problem::NotNow(format!(
            "PodCertificateRequest for pod {pod_path:?} names service account UID {asked:?}, which differs from the running service account ({found:?})"
        ))),
    }
}

/// Checks that the pod has the requested uid, and runs on the node as the requested service account.
fn check_pod(pod: &Value, path: &str, spec: &Value) -> Result<(), Problem> {
    let (asked, found) = (spec.text("podUID"), metadata::of(pod).text("uid"));
    if asked != found {
        return Err(Problem::NotNow(format!(
            "PodCertificateRequest for pod {path:?} contains pod UID ({asked:?}) which differs from running pod {found:?}"
        )));
    }
    let node = spec.text("nodeName");
    if pod.at("spec").text("nodeName") != node {
        let why = format!("pod {path:?} is not running on node {node:?} named in the PodCertificateRequest");
        return Err(Problem::Forbidden(why));
    }
    if metadata::of(pod).at("annotations").has(MIRROR) {
        return Err(Problem::Forbidden(format!("pod {path:?} is a mirror pod")));
    }
    let (asked, found) = (spec.text("serviceAccountName"), pod.at("spec").text("serviceAccountName"));
    match asked == found {
        true => Ok(()),
        false => Err(Problem::Forbidden(format!(
            "PodCertificateRequest for pod {path:?} contains serviceAccountName ({asked:?}) that differs from running pod ({found:?})"
        ))),
    }
}

fn there<'a>(
    object: Option<&'a Value>,
    (what, kind): (&str, &str),
    path: &str,
    name: &str,
) -> Result<&'a Value, Problem> {
    object.ok_or_else(|| {
        Problem::NotNow(format!(
            "while retrieving {what} {path:?} named in the PodCertificateRequest: {kind} {name:?} not found"
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named() -> Named {
        Named {
            node: Some(json!({"metadata": {"uid": "n-1"}})),
            pod: Some(json!({
                "metadata": {"uid": "p-1"}, "spec": {"nodeName": "n", "serviceAccountName": "robot"}})),
            account: Some(json!({"metadata": {"uid": "a-1"}})),
        }
    }

    /// Checks a request with these fields changed, after `change` has altered the existing objects.
    fn said(different: Value, change: impl FnOnce(&mut Named)) -> Result<(), Problem> {
        let mut spec = json!({
            "nodeName": "n", "nodeUID": "n-1", "podName": "p", "podUID": "p-1",
            "serviceAccountName": "robot", "serviceAccountUID": "a-1",
        });
        spec.as_object_mut().unwrap().extend(different.as_object().unwrap().clone());
        let mut named = named();
        change(&mut named);
        problem("n", "ns", &spec, &named)
    }

    #[test]
    fn a_node_requests_certificates_for_its_own_pods() {
        let is_forbidden = |said: Result<(), Problem>| matches!(said, Err(Problem::Forbidden(_)));
        assert_eq!(said(json!({}), |_| {}), Ok(()));
        assert!(is_forbidden(said(json!({"nodeName": "other"}), |_| {})));
        assert!(is_forbidden(said(json!({"serviceAccountName": "other"}), |_| {})));
        let elsewhere = |named: &mut Named| {
            named.pod.as_mut().unwrap()["spec"]["nodeName"] = "other".into();
        };
        assert!(is_forbidden(said(json!({}), elsewhere)));
        let mirror = |named: &mut Named| {
            named.pod.as_mut().unwrap()["metadata"]["annotations"] = json!({MIRROR: "x"});
        };
        assert!(is_forbidden(said(json!({}), mirror)));
    }

    #[test]
    fn not_yet_existing_tokens_can_be_retried() {
        let is_refused_now = |said: Result<(), Problem>| matches!(said, Err(Problem::NotNow(_)));
        for field in ["nodeUID", "podUID", "serviceAccountUID"] {
            assert!(is_refused_now(said(json!({field: "other"}), |_| {})), "{field}");
        }
        let why = "while retrieving pod \"ns/p\" named in the PodCertificateRequest: pod \"p\" not found";
        assert_eq!(said(json!({}), |named| named.pod = None), Err(Problem::NotNow(why.into())));
        assert!(is_refused_now(said(json!({}), |named| named.node = None)));
        assert!(is_refused_now(said(json!({}), |named| named.account = None)));
    }
}
