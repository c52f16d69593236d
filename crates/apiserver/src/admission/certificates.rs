//! Admission of certificate requests: who may approve and sign them, and which subjects are forbidden.

use base64::Engine;
use serde_json::Value;
use x509_parser::prelude::FromDer;

use super::{Operation, Plugin, Review};
use crate::auth::{Attributes, MASTERS};
use crate::json::Json;
use crate::kind::Subresource;
use crate::request::ResourceTarget;
use crate::status::Status;
use crate::tls;

/// Requires the `approve` right on the signer.
pub struct CertificateApproval;
/// Requires the `sign` right on the signer.
pub struct CertificateSigning;
/// Requires the `attest` right on the signer of a trust bundle.
pub struct ClusterTrustBundleAttest;
/// Rejects requests for client certificates of `system:masters`.
pub struct CertificateSubjectRestriction;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

fn is_for_requests(review: &Review<'_>, operation: Operation, subresource: Option<Subresource>) -> bool {
    let kind = &review.served.kind;
    kind.group == GROUP
        && kind.plural == "certificatesigningrequests"
        && review.operation == operation
        && review.subresource == subresource
}

impl Plugin for CertificateApproval {
    fn handles(&self, review: &Review<'_>) -> bool {
        is_for_requests(review, Operation::Update, Some(Subresource::Approval))
    }

    async fn check(&self, review: &Review<'_>, _: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        let signer = old.map_or("", |old| old.at("spec").text("signerName"));
        if may(review, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(review.forbidden(old, why).for_lack_of_rights())
    }
}

impl Plugin for ClusterTrustBundleAttest {
    fn handles(&self, review: &Review<'_>) -> bool {
        let kind = &review.served.kind;
        let writes = matches!(review.operation, Operation::Create | Operation::Update);
        kind.group == GROUP && kind.plural == "clustertrustbundles" && writes && review.subresource.is_none()
    }

    async fn check(
        &self,
        review: &Review<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let signer = new.map_or("", |bundle| bundle.at("spec").text("signerName"));
        let unchanged = old.is_some_and(|old| new.is_some_and(|new| new.at("spec") == old.at("spec")));
        if signer.is_empty() || unchanged || may(review, "attest", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to attest for signerName {signer:?}");
        Err(review.forbidden(new, why).for_lack_of_rights())
    }
}

impl Plugin for CertificateSigning {
    fn handles(&self, review: &Review<'_>) -> bool {
        is_for_requests(review, Operation::Update, Some(Subresource::Status))
    }

    async fn check(
        &self,
        review: &Review<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(new), Some(old)) = (new, old) else { return Ok(()) };
        let (now, before) = (new.at("status"), old.at("status"));
        let is_same = |field: &str| now.at(field) == before.at(field);
        let signer = old.at("spec").text("signerName");
        if is_same("certificate") && is_same("conditions") || may(review, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName {signer:?}");
        Err(review.forbidden(Some(old), why).for_lack_of_rights())
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn handles(&self, review: &Review<'_>) -> bool {
        is_for_requests(review, Operation::Create, None)
    }

    async fn check(
        &self,
        review: &Review<'_>,
        request: Option<&Value>,
        _: Option<&Value>,
    ) -> Result<(), Status> {
        match request {
            Some(request) => check_subject(request).map_err(|why| review.forbidden(Some(request), why)),
            None => Ok(()),
        }
    }
}

fn check_subject(request: &Value) -> Result<(), String> {
    let spec = request.at("spec");
    if spec.text("signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let groups = organizations(spec.text("request")).map_err(|why| format!("failed to parse CSR: {why}"))?;
    match groups.iter().any(|group| group == MASTERS) {
        true => Err(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")),
        false => Ok(()),
    }
}

/// Returns the organizations in the subject of a certificate request: PEM, in base64.
fn organizations(encoded: &str) -> Result<Vec<String>, String> {
    let pem = base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|why| why.to_string())?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).map_err(|why| why.to_string())?;
    let (_, request) = x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents)
        .map_err(|why| why.to_string())?;
    let subject = &request.certification_request_info.subject;
    tls::organizations(subject).ok_or_else(|| "an organization of the subject cannot be read".to_owned())
}

/// Whether the user has the verb on a signer, or on all signers of its domain.
async fn may(review: &Review<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let target = ResourceTarget {
            group: GROUP.into(),
            version: "*".into(),
            resource: "signers".into(),
            name: Some(name),
            ..ResourceTarget::default()
        };
        let attributes = Attributes { user: review.user, verb, path: "", resource: Some(&target) };
        if review.server.authorizer.authorize(&attributes).await.is_allowed() {
            return true;
        }
    }
    false
}
