//! Restricts token requests by nodes: each must be for a pod on the node and an audience the pod uses.

use serde_json::Value;

use super::{Operation, Review, node_pods};
use crate::auth::Attributes;
use crate::json::Json;
use crate::kind::Subresource;
use crate::kinds::pod::references;
use crate::metadata;
use crate::request::ResourceTarget;
use crate::status::Status;

pub(super) async fn check_node(
    node: &str,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<(), Status> {
    if (review.operation, review.subresource) != (Operation::Create, Some(Subresource::Token)) {
        return Ok(());
    }
    let request = object.unwrap_or(&Value::Null);
    let refuse = |why: String| Err(review.forbidden(object, why));
    let bound = request.at("spec").at("boundObjectRef");
    let (name, uid) = (bound.text("name"), bound.text("uid"));
    if bound.text("apiVersion") != "v1" || bound.text("kind") != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod".into());
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid".into());
    }
    let pod = node_pods::find(review, name).await?;
    if metadata::of(&pod).text("uid") != uid {
        return refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if pod.at("spec").text("nodeName") != node {
        return refuse("node requested token bound to a pod scheduled on a different node".into());
    }
    match request.at("spec").list("audiences") {
        [] => check_audience(review, object, &pod, "").await,
        [audience] => check_audience(review, object, &pod, audience.as_str().unwrap_or_default()).await,
        _ => refuse("node may only request 0 or 1 audiences".into()),
    }
}

async fn check_audience(
    review: &Review<'_>,
    object: Option<&Value>,
    pod: &Value,
    audience: &str,
) -> Result<(), Status> {
    let refuse = |why: String| Err(review.forbidden(object, why));
    let mut missing = Vec::new();
    for volume in pod.at("spec").list("volumes") {
        let sources = volume.at("projected").list("sources");
        let mut mounted = sources.iter().map(|source| source.at("serviceAccountToken"));
        if mounted.any(|token| token.is_object() && token.text("audience") == audience) {
            return Ok(());
        }
        match driver_of(review, pod, volume).await? {
            Ok(Some(driver)) if has_audience(&driver, audience) => return Ok(()),
            Ok(_) => {}
            Err(Missing(what)) => missing.push(what),
        }
    }
    if !missing.is_empty() {
        let what =
            if let [only] = missing.as_slice() { only.clone() } else { format!("[{}]", missing.join(", ")) };
        return refuse(format!("error validating audience {audience:?}: {what}"));
    }
    if may_request(review, audience).await {
        return Ok(());
    }
    refuse(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        review.user.name
    ))
}

/// Whether a CSI driver requests tokens for this audience on behalf of pods.
fn has_audience(driver: &Value, audience: &str) -> bool {
    driver.at("spec").list("tokenRequests").iter().any(|request| request.text("audience") == audience)
}

/// The error for a missing object between a volume and its driver.
struct Missing(String);

/// Returns the CSI driver of a pod's volume, if it has one.
async fn driver_of(
    review: &Review<'_>,
    pod: &Value,
    volume: &Value,
) -> Result<Result<Option<Value>, Missing>, Status> {
    let missing = |kind: &str, name: &str| Ok(Err(Missing(format!("{kind} {name:?} not found"))));
    let driver = match (volume.has("csi"), references::claim(pod, volume)) {
        (true, _) => volume.at("csi").text("driver").to_owned(),
        (false, None) => return Ok(Ok(None)),
        (false, Some(claim)) => {
            let found = review.find_in("", "persistentvolumeclaims", review.namespace, &claim).await?;
            let Some(found) = found else { return missing("persistentvolumeclaim", &claim) };
            let volume = found.at("spec").text("volumeName");
            let Some(found) = review.find("", "persistentvolumes", volume).await? else {
                return missing("persistentvolume", volume);
            };
            found.at("spec").at("csi").text("driver").to_owned()
        }
    };
    if driver.is_empty() {
        return Ok(Ok(None));
    }
    match review.find("storage.k8s.io", "csidrivers", &driver).await? {
        None => missing("csidriver.storage.k8s.io", &driver),
        found => Ok(Ok(found)),
    }
}

/// Whether the node is authorized to request tokens for an audience.
async fn may_request(review: &Review<'_>, audience: &str) -> bool {
    let target = ResourceTarget {
        version: "v1".into(),
        namespace: review.namespace.map(Into::into),
        resource: audience.into(),
        name: Some(review.name.clone()),
        ..ResourceTarget::default()
    };
    let verb = "request-serviceaccounts-token-audience";
    let attributes = Attributes { user: review.user, verb, path: "", resource: Some(&target) };
    review.server.authorizer.authorize(&attributes).await.is_allowed()
}
