//! Approves client certificate requests of kubelets that are authorized to have them.

use serde::Deserialize;
use serde_json::json;
use setpoint::client::{Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Context, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
    UpdateBody,
};

use super::policy::{KUBELET_CLIENT, is_kubelet_client};
use super::request::Request;
use super::signing::with_condition;
use super::view::SigningRequest;
use super::{GROUP, REQUESTS, of_requests};
use crate::registry::{Access, EVENTS, Entry, Options};

pub(crate) const ENTRY: Entry = Entry {
    name: "certificatesigningrequest-approving-controller",
    aliases: &["csrapproving"],
    on_by_default: true,
    gates: &[],
    summary: "approves kubelets' client certificate requests",
    watches: &[Access::watch(GROUP, REQUESTS)],
    writes: &[
        Access::to(GROUP, "certificatesigningrequests/approval", &["update"]),
        Access::to(GROUP, "signers", &["approve"]),
        Access::to("authorization.k8s.io", "subjectaccessreviews", &["create"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

/// A permission that allows automatic approval, and the approval message.
struct Right {
    subresource: &'static str,
    message: &'static str,
}

const SELF: Right = Right {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const ANY: Right = Right {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let approving = Approving {
        client: context.client.clone(),
        requests: context.informers.of::<SigningRequest>().lister(),
    };
    of_requests(context, options, &ENTRY, "certificate_approving", approving)
}

struct Approving {
    client: Client,
    requests: Lister<SigningRequest>,
}

/// The result of a SubjectAccessReview.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reviewed {
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
}

impl Reconciler for Approving {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(asked) = self.requests.get(key)? else { return Ok(Outcome::Settled) };
        if asked.is_issued() || asked.has("Approved") || asked.has("Denied") {
            return Ok(Outcome::Settled);
        }
        let request = Request::parse(&asked.request()).map_err(|why| ReconcileError::Retry {
            attempted: format!("read signing request {key}"),
            source: Some(why.into()),
        })?;
        let rights = rights(&asked, &request);
        for right in rights {
            let allowed = self.may(&asked, right).await;
            if allowed.attempting(format!("ask whether signing request {key} may be approved"))? {
                return self.approve(&asked, right).await;
            }
        }
        match rights {
            [] => Ok(Outcome::Settled),
            // Retry: the permission may still be granted, and no event would report that.
            rights => {
                let tried: Vec<_> = rights.iter().map(|right| right.subresource).collect();
                let why = format!(
                    "recognized csr \"{key}\" as [{}] but subject access review was not approved",
                    tried.join(" ")
                );
                Err(ReconcileError::retry(why))
            }
        }
    }
}

/// Returns the permissions that allow approval. Any one of them suffices.
fn rights<'a>(asked: &SigningRequest, request: &Request) -> &'a [Right] {
    if asked.spec.signer_name != KUBELET_CLIENT || !is_kubelet_client(request, &asked.spec.usages) {
        return &[];
    }
    if asked.spec.username == request.common_name { &[SELF, ANY] } else { &[ANY] }
}

impl Approving {
    async fn may(&self, asked: &SigningRequest, right: &Right) -> Result<bool, ClientError> {
        let spec = &asked.spec;
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": spec.username,
                "uid": spec.uid,
                "groups": spec.groups,
                "extra": spec.extra,
                "resourceAttributes": {
                    "group": GROUP, "resource": REQUESTS, "verb": "create",
                    "subresource": right.subresource, "version": "*",
                },
            },
        });
        let kind =
            Kind::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", false);
        let reviewed = self.client.create(&kind, None, &body).await?;
        let reviewed: Reviewed =
            reviewed.decode().map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
        Ok(reviewed.status.allowed)
    }

    async fn approve(
        &self,
        asked: &Cached<SigningRequest>,
        right: &Right,
    ) -> Result<Outcome, ReconcileError> {
        let approved = json!({
            "type": "Approved", "status": "True", "reason": "AutoApproved", "message": right.message,
        });
        let edit =
            UpdateBody::of(asked.object()).set(&["status", "conditions"], &with_condition(asked, approved));
        let kind = Kind::of::<SigningRequest>();
        let updated = self.client.update(&kind, asked.key(), Subresource::Approval, &edit).await;
        updated.optional().attempting(format!("approve signing request {}", asked.key()))?;
        Ok(Outcome::Settled)
    }
}
