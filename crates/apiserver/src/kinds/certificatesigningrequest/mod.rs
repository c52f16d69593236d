//! CertificateSigningRequests.
//!
//! Clients say what they request; the server records who they are. Approval and the issued certificate each have a
//! subresource, and neither can write the other's fields.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CERTIFICATES, entry};
use crate::auth::User;
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::{self, Column, or_none};

mod pem;
mod validation;

pub(super) use pem::problem_of_certificates;
pub(super) use validation::check_signer;
use validation::{Allowed, check, check_change};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["csr".into()],
        subresources: vec![Subresource::Approval, Subresource::Status],
        columns: vec![
            Column::name(),
            Column::age(),
            Column::text("SignerName", SIGNER, |request, _| or_none(request.at("spec").text("signerName"))),
            Column::text("Requestor", "Base64-encoded PKCS#10 CSR data", |request, _| {
                request.at("spec").text("username").into()
            }),
            Column::text("RequestedDuration", DURATION, |request, _| duration(request).into()),
            Column::text(
                "Condition",
                "Conditions applied to the request, such as approval or denial.",
                |request, _| condition(request).into(),
            ),
        ],
        field_selectors: vec![FieldSelector {
            path: "spec.signerName",
            value: |request| request.at("spec").text("signerName").to_owned(),
        }],
        semantics: Semantics {
            counts_generations: false,
            names: NameRule::PathSegment,
            ..Semantics::with_status(|| json!({}))
        },
        ..entry(&CERTIFICATES, "CertificateSigningRequest", "certificatesigningrequests", SigningRequest)
    }
}

const SIGNER: &str = "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.";
const DURATION: &str = "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer may issue a certificate with a different validity duration so a client must check the delta between the notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 minutes.";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

fn duration(request: &Value) -> String {
    match request.at("spec").int("expirationSeconds") {
        Some(seconds) => table::human_duration(seconds.into()),
        None => "<none>".into(),
    }
}

fn condition(request: &Value) -> String {
    let has = |kind: &str| conditions(request, kind).next().is_some();
    let mut shown = if has(DENIED) {
        DENIED.to_owned()
    } else if has(APPROVED) {
        APPROVED.into()
    } else {
        "Pending".into()
    };
    if has(FAILED) {
        shown.push_str(",Failed");
    }
    if !request.at("status").text("certificate").is_empty() {
        shown.push_str(",Issued");
    }
    shown
}

/// Returns the conditions of a type.
fn conditions<'a>(request: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    let all = request.at("status").list("conditions").iter();
    all.filter(move |condition| condition.text("type") == kind)
}

/// Decodes a base64 field.
fn bytes(object: &Value, field: &str) -> Vec<u8> {
    STANDARD.decode(object.text(field)).unwrap_or_default()
}

struct SigningRequest;

impl Lifecycle for SigningRequest {
    /// Records the requesting user, and the times of new conditions.
    fn stamp(&self, request: &mut Value, old: Option<&Value>, user: &User, now: Timestamp) {
        match old {
            None => note_user(request.object_mut("spec"), user),
            Some(old) => date_conditions(request, old, now),
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }

    fn prepare_for_subresource_update(&self, subresource: Subresource, new: &mut Value, old: &Value) {
        new.restore("spec", old);
        if subresource == Subresource::Approval {
            let conditions = new.at("status").at("conditions").clone();
            new.restore("status", old);
            new.object_mut("status").set("conditions", conditions);
        } else {
            keep_conditions(new, old, APPROVED);
            keep_conditions(new, old, DENIED);
        }
    }

    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        Some(match subresource {
            None => &[&["spec"], &["status"]],
            Some(Subresource::Approval) => &[&["spec"], &["status", "certificate"]],
            Some(_) => &[&["spec"], &["status", "conditions"]],
        })
    }
}

impl Validation for SigningRequest {
    fn validate(&self, request: &Value) -> Errors {
        let mut errors = Errors::default();
        check(request, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        check_change(new, old, Allowed::Nothing)
    }

    fn validate_subresource_update(&self, subresource: Subresource, new: &Value, old: &Value) -> Errors {
        let allowed = match subresource {
            Subresource::Approval => Allowed::Approval,
            _ => Allowed::Certificate,
        };
        check_change(new, old, allowed)
    }
}

fn note_user(spec: &mut Value, user: &User) {
    for field in ["username", "uid", "groups", "extra"] {
        spec.unset(field);
    }
    if !user.name.is_empty() {
        spec.set("username", user.name.as_str());
    }
    if !user.uid.is_empty() {
        spec.set("uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        spec.set("groups", user.groups.clone());
    }
    if !user.extra.is_empty() {
        spec.set("extra", json!(user.extra));
    }
}

/// Restores conditions that another subresource controls, if their number is unchanged.
fn keep_conditions(new: &mut Value, old: &Value, kind: &str) {
    let before: Vec<Value> = conditions(old, kind).cloned().collect();
    if conditions(new, kind).count() != before.len() {
        return;
    }
    let now = new.at_mut("status").map(|status| status.list_mut("conditions")).into_iter().flatten();
    let now = now.filter(|condition| condition.text("type") == kind);
    for (condition, before) in now.zip(before) {
        *condition = before;
    }
}

fn date_conditions(new: &mut Value, old: &Value, now: Timestamp) {
    let now = crate::metadata::seconds(now);
    let known = old.at("status").list("conditions");
    for condition in new.at_mut("status").map(|status| status.list_mut("conditions")).into_iter().flatten() {
        condition.or_insert("lastUpdateTime", now.as_str());
        if condition.has("lastTransitionTime") {
            continue;
        }
        let same = |other: &&Value| {
            ["type", "status"].iter().all(|field| other.text(field) == condition.text(field))
                && other.has("lastTransitionTime")
        };
        let since = known.iter().find(same).map_or(&*now, |known| known.text("lastTransitionTime"));
        condition.set("lastTransitionTime", since);
    }
}

#[cfg(test)]
mod tests;
