//! Typed views of pods, claims and templates.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use setpoint::{Cached, Metadata, Object, OwnerRef};

use crate::workload::encoding::null_is_empty;

/// The finalizer that keeps a claim while it is allocated.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation with the pod's claim entry that a claim was generated for.
pub(crate) const FOR_REQUEST: &str = "resource.kubernetes.io/pod-claim-name";
/// The maximum number of consumers of a claim.
const MAX_CONSUMERS: usize = 256;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

setpoint::view!(Pod of k8s_openapi::api::core::v1::Pod);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) node_name: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) resource_claims: Vec<Request>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) phase: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) resource_claim_statuses: Vec<GeneratedClaim>,
}

/// An entry of a pod's `resourceClaims`: an existing claim or a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) resource_claim_name: Option<String>,
    pub(crate) resource_claim_template_name: Option<String>,
}

/// The claim generated for an entry. `None` if none is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GeneratedClaim {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_claim_name: Option<String>,
}

/// The claim of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    /// The claim with this name. A generated claim must be owned by the pod.
    Claim {
        name: &'a str,
        of_pod: bool,
    },
    NotNeeded,
    NotMadeYet,
}

impl Pod {
    pub(crate) fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    pub(crate) fn claim_of<'a>(&'a self, request: &'a Request) -> Named<'a> {
        if let Some(name) = &request.resource_claim_name {
            return Named::Claim { name, of_pod: false };
        }
        match self.status.resource_claim_statuses.iter().find(|given| given.name == request.name) {
            Some(GeneratedClaim { resource_claim_name: Some(name), .. }) => {
                Named::Claim { name, of_pod: true }
            }
            Some(_) => Named::NotNeeded,
            None => Named::NotMadeYet,
        }
    }

    /// Lists the names of the claims it is known to use.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        self.spec.resource_claims.iter().filter_map(|request| match self.claim_of(request) {
            Named::Claim { name, .. } => Some(name),
            _ => None,
        })
    }
}

/// Whether a pod will never run again.
pub(crate) fn is_done(pod: &Cached<Pod>) -> bool {
    pod.has_ended() || (pod.meta().is_being_deleted() && pod.spec.node_name.is_empty())
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    metadata: Annotated,
    pub(crate) status: ClaimStatus,
}

setpoint::view!(Claim of k8s_openapi::api::resource::v1::ResourceClaim);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: Option<Annotations>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "resource.kubernetes.io/pod-claim-name")]
    request: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimStatus {
    #[serde(deserialize_with = "is_present")]
    pub(crate) allocation: bool,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) reserved_for: Vec<Consumer>,
}

/// Only the presence of an allocation is decoded.
fn is_present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Consumer {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) api_group: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Consumer {
    pub(crate) fn is_pod(&self) -> bool {
        self.api_group.is_empty() && self.resource == "pods"
    }
}

impl Claim {
    /// The entry of its pod that it was generated for.
    pub(crate) fn request(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.request.as_deref()
    }

    /// Whether a scheduled pod is missing from its consumers.
    pub(crate) fn lacks(&self, pod_uid: &str) -> bool {
        let reserved = &self.status.reserved_for;
        let has = reserved.iter().any(|consumer| consumer.uid == pod_uid);
        self.status.allocation && !has && reserved.len() < MAX_CONSUMERS
    }
}

/// The pod that a claim was generated for.
pub(crate) fn owning_pod(claim: &Metadata) -> Option<&OwnerRef> {
    claim.controller().filter(|owner| &*owner.api_version == "v1" && &*owner.kind == "Pod")
}

/// Index of claims by the uid of the pod they were generated for.
pub(crate) fn by_owning_pod(claim: &Object) -> Vec<String> {
    owning_pod(claim.meta()).map(|owner| owner.uid.to_string()).into_iter().collect()
}

/// Decodes a pod if it uses claims. Most do not and need no decoding.
pub(crate) fn with_claims(pod: &Object) -> Option<&Pod> {
    if !pod.contains_text("\"resourceClaims\"") {
        return None;
    }
    pod.view::<Pod>().ok().filter(|pod| !pod.spec.resource_claims.is_empty())
}

/// Index of pods by the claims they use.
pub(crate) fn by_claim(pod: &Object) -> Vec<String> {
    let Some(view) = with_claims(pod) else { return Vec::new() };
    view.claims().map(|name| pod.key().sibling(name).to_string()).collect()
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Template {
    pub(crate) spec: TemplateSpec,
}

setpoint::view!(Template of k8s_openapi::api::resource::v1::ResourceClaimTemplate);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateSpec {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) metadata: Value,
    pub(crate) spec: Value,
}
