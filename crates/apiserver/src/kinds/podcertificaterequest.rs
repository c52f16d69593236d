//! PodCertificateRequests: nodes request certificates for pods. Served if the feature is enabled.
//!
//! This server does not verify that the key is the pod's: checking the signature over the pod's UID is left to the
//! signer.

use serde_json::{Value, json};

use super::certificatesigningrequest::check_signer;
use super::{CERTIFICATES_V1ALPHA1, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Subresource};
use crate::strategy::{Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::{conditions, dns_subdomain, has_condition, immutable};

/// The conditions that complete a request.
const ENDS: [&str; 3] = ["Denied", "Failed", "Issued"];
const MIN_SECONDS: i64 = 3600;
/// Maximum lifetime of certificates by Kubernetes' own signers, and by others.
const MAX_OWN_SECONDS: i64 = 24 * 3600;
const MAX_SECONDS: i64 = 91 * 24 * 3600;
const UID_BYTES: usize = 128;

const POD: &str = "podName is the name of the pod into which the certificate will be mounted.";
const ACCOUNT: &str = "serviceAccountName is the name of the service account the pod is running as.";
const NODE: &str = "nodeName is the name of the node the pod is assigned to.";
const SIGNER: &str = "signerName indicates the requested signer.";

pub fn kind() -> Kind {
    Kind {
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("PodName", POD, |request, _| request.at("spec").text("podName").into()),
            Column::text("ServiceAccountName", ACCOUNT, |request, _| {
                request.at("spec").text("serviceAccountName").into()
            }),
            Column::text("NodeName", NODE, |request, _| request.at("spec").text("nodeName").into()),
            Column::text("SignerName", SIGNER, |request, _| request.at("spec").text("signerName").into()),
            Column::text("State", "", |request, _| state(request).into()),
        ],
        field_selectors: vec![
            FieldSelector {
                path: "spec.signerName",
                value: |one| one.at("spec").text("signerName").to_owned(),
            },
            FieldSelector { path: "spec.podName", value: |one| one.at("spec").text("podName").to_owned() },
            FieldSelector { path: "spec.nodeName", value: |one| one.at("spec").text("nodeName").to_owned() },
        ],
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            ..Semantics::with_strict_status(|| json!({}))
        },
        ..entry(
            &CERTIFICATES_V1ALPHA1,
            "PodCertificateRequest",
            "podcertificaterequests",
            PodCertificateRequest,
        )
    }
}

fn state(request: &Value) -> String {
    ended(request.at("status")).unwrap_or("Pending").to_owned()
}

/// Returns how a request was completed, if it was.
fn ended(status: &Value) -> Option<&'static str> {
    ENDS.into_iter().find(|end| has_condition(status, end))
}

struct PodCertificateRequest;

impl Lifecycle for PodCertificateRequest {
    fn default(&self, request: &mut Value) {
        request.object_mut("spec").or_insert("maxExpirationSeconds", 86_400);
    }
}

impl Validation for PodCertificateRequest {
    fn validate(&self, request: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(request, &mut errors);
        check(request.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        immutable(new.at("spec"), old.at("spec"), &Path::root("spec"), &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_status(new.at("status"), old.at("status"), &mut errors);
        errors
    }
}

fn check(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    check_signer(spec.text("signerName"), &path.child("signerName"), errors);
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        dns_subdomain(spec.text(name), &path.child(name), errors);
        let value = spec.text(uid);
        if value.is_empty() {
            errors.invalid(&path.child(uid), value, "must not be empty");
        }
        if value.len() > UID_BYTES {
            crate::validation::too_long(UID_BYTES, &path.child(uid), errors);
        }
    }
    let own = spec.text("signerName").split('/').next().unwrap_or_default();
    let own = own == "kubernetes.io" || own.ends_with(".kubernetes.io");
    let longest = if own { MAX_OWN_SECONDS } else { MAX_SECONDS };
    let path = path.child("maxExpirationSeconds");
    match spec.int("maxExpirationSeconds") {
        None => errors.required(&path, "must be set"),
        Some(seconds) if !(MIN_SECONDS..=longest).contains(&seconds) => {
            errors.invalid(&path, seconds, format!("must be in the range [{MIN_SECONDS}, {longest}]"));
        }
        Some(_) => {}
    }
}

/// Checks that a request is completed only once, and that its result does not change.
fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let list = path.child("conditions");
    for (index, condition) in new.list("conditions").iter().enumerate() {
        let path = list.index(index);
        if !ENDS.contains(&condition.text("type")) {
            errors.not_supported(
                &path.child("type"),
                condition.text("type"),
                &["Issued", "Denied", "Failed"],
            );
        } else if condition.text("status") != "True" {
            errors.not_supported(&path.child("status"), condition.text("status"), &["True"]);
        }
        if index > 0 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(&path.child("type"), condition.text("type"), detail);
        }
    }
    conditions(new.list("conditions"), &list, errors);
    if !errors.is_empty() {
        return;
    }
    let mut add_invalid = |detail: &str| errors.invalid(&path, new.clone(), detail);
    if ended(old).is_some() {
        if new != old {
            add_invalid("immutable after PodCertificateRequest is issued, denied, or failed");
        }
        return;
    }
    let others = |status: &Value| {
        let fields = status.as_object().into_iter().flatten();
        fields.filter(|(name, value)| *name != "conditions" && !value.is_null()).count()
    };
    match ended(new) {
        Some("Issued") => check_issued(new, errors),
        Some(_) if others(new) > 0 => {
            add_invalid(
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
            );
        }
        Some(_) => {}
        None if new != old => {
            add_invalid("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"");
        }
        None => {}
    }
}

fn check_issued(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    if let Some(problem) =
        super::certificatesigningrequest::problem_of_certificates(status.text("certificateChain").as_bytes())
    {
        errors.invalid(&path.child("certificateChain"), status.text("certificateChain"), problem);
    }
    for field in ["notBefore", "notAfter"] {
        if !status.has(field) {
            let detail = "must be present and consistent with the issued certificate";
            errors.required(&path.child(field), detail);
        }
    }
    if !status.has("beginRefreshAt") {
        let detail = "must be present and in the range [notbefore+10min, notafter-10min]";
        errors.required(&path.child("beginRefreshAt"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;

    fn spec() -> Value {
        json!({
            "signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "a",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "pkixPublicKey": "", "proofOfPossession": "",
        })
    }

    #[test]
    fn a_request_names_who_it_is_for_and_how_long() {
        checking::create(&PodCertificateRequest, json!({"spec": spec()}), &[]);
        let mut short = spec();
        short.set("maxExpirationSeconds", 60);
        short.set("podUID", "");
        let wrong = &["Invalid spec.podUID", "Invalid spec.maxExpirationSeconds"];
        checking::create(&PodCertificateRequest, json!({"spec": short}), wrong);
    }

    #[test]
    fn a_request_ends_once() {
        let ended = |how: &str| {
            json!({"status": {"conditions": [{"type": how, "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2025-01-01T00:00:00Z"}]}})
        };
        let check = |new: &Value, old: &Value, expected: usize| {
            let errors = PodCertificateRequest.validate_status_update(new, old);
            assert_eq!(errors.0.len(), expected, "{new}");
        };
        check(&ended("Denied"), &json!({"status": {}}), 0);
        check(&ended("Failed"), &ended("Denied"), 1);
        check(&ended("Maybe"), &json!({"status": {}}), 1);
        check(&ended("Issued"), &json!({"status": {}}), 4);
    }
}
