//! CertificateSigningRequests: missing approvals, denials, signers that do not run.

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::LEASE;
use crate::leases;
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::duration;

/// How long a signer may take.
const MOMENT: i64 = 30;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, request: &'a Item) -> Node {
    let signer = request.text("/spec/signerName");
    let conditions = request.conditions();
    let node = node_of(request)
        .evidence([Evidence::field("spec.signerName", signer)])
        .evidence(conditions.iter().map(|condition| condition.evidence()));
    let condition = |kind: &str| conditions.iter().find(|one| one.kind == kind && one.status != "False");
    if let Some(denied) = condition("Denied") {
        return node
            .failed(format!("was denied ({}): {}", denied.reason, denied.message), "create another request");
    }
    if let Some(failed) = condition("Failed") {
        let text = format!("was not signed by {signer} ({}): {}", failed.reason, failed.message);
        return node.failed(text, "correct the request as the message says, and create it again");
    }
    if request.has("/status/certificate") {
        return node.converged("issued");
    }
    let Some(approved) = condition("Approved") else {
        let user = request.text("/spec/username");
        let text = format!("waits for approval: {user} asks signer {signer} for a certificate");
        return node
            .blocked(text, format!("kubectl certificate approve {}", request.name()))
            .next("a request that is not approved within 24 hours is deleted", None);
    };
    let age = approved.time.map_or(inquiry.age(request), |time| inquiry.now.duration_since(time).as_secs());
    if age <= MOMENT {
        return node.progressing("is approved, and about to be signed");
    }
    if signer.starts_with("kubernetes.io/") {
        let down = leases::component_down(inquiry, "kube-controller-manager");
        let lease = down
            .as_ref()
            .and_then(|_| inquiry.explain_named(&LEASE, Some("kube-system"), "kube-controller-manager"));
        let why = down.map(|down| format!(": {down}")).unwrap_or_default();
        let text = format!(
            "was approved {} ago, but signer {signer} has not issued a certificate{why}",
            duration(age)
        );
        return node
            .blocked(
                text,
                "check the csrsigning controller, and that it has the signer's certificate and key",
            )
            .children(lease);
    }
    let text = format!("was approved {} ago, but no signer {signer} has issued a certificate", duration(age));
    node.blocked(text, format!("run the controller that signs for {signer}"))
}
