//! Validates certificate signing requests and their updates.

use serde_json::Value;

use super::pem::{problem_of_certificates, problem_of_request};
use super::{APPROVED, DENIED, FAILED, bytes, conditions};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::metadata;
use crate::names;
use crate::strategy::NameRule;
use crate::validation::{Seen, difference, too_long};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const MIN_SECONDS: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The fields that an endpoint may write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    Nothing,
    Approval,
    Certificate,
}

fn usages(request: &Value) -> impl Iterator<Item = &str> + Clone {
    request.at("spec").list("usages").iter().filter_map(Value::as_str)
}

fn has_repeated<'a>(words: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = Seen::new();
    words.into_iter().any(|word| seen.again(word))
}

fn types(request: &Value) -> impl Iterator<Item = &str> {
    request.at("status").list("conditions").iter().map(|condition| condition.text("type"))
}

/// Validates the whole request; existing errors in `old` are tolerated.
pub(super) fn check(request: &Value, old: &Value, errors: &mut Errors) {
    metadata::new(request, errors);
    let (spec, path) = (request.at("spec"), Path::root("spec"));
    if let Some(problem) = problem_of_request(&bytes(spec, "request")) {
        errors.invalid(&path.child("request"), spec.text("request"), problem);
    }
    check_usages(request, old, &path.child("usages"), errors);
    let (signer, signer_path) = (spec.text("signerName"), path.child("signerName"));
    if signer == LEGACY_SIGNER && old.at("spec").text("signerName") != LEGACY_SIGNER {
        errors.invalid(&signer_path, signer, "the legacy signerName is not allowed via this API version");
    } else {
        check_signer(signer, &signer_path, errors);
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < MIN_SECONDS) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), seconds, detail);
    }
    check_conditions(request, old, errors);
    check_certificate(request.at("status"), old.at("status"), errors);
}

fn check_usages(request: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if usages(request).next().is_none() {
        errors.required(path, "");
    }
    if !usages(old).any(|usage| !USAGES.contains(&usage)) {
        for (index, usage) in usages(request).enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
            errors.not_supported(&path.index(index), usage, &USAGES);
        }
    }
    if !has_repeated(usages(old)) {
        let mut seen = Seen::new();
        for (index, usage) in usages(request).enumerate() {
            if seen.again(usage) {
                errors.duplicate(&path.index(index), usage);
            }
        }
    }
}

/// Validates a signer name: a domain, a slash, and a name.
pub(in crate::kinds) fn check_signer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, detail);
    };
    if domain.len() > 253 {
        too_long(253, path, errors);
    }
    check_labels(domain, names::dns_label, path, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, domain, detail);
    }
    check_labels(rest, names::dns_subdomain, path, errors);
    if name.len() > 253 + 1 + 253 + 63 + 1 {
        too_long(253 + 1 + 253 + 63 + 1, path, errors);
    }
}

/// Reports the first invalid label between the dots.
fn check_labels(text: &str, rule: fn(&str) -> names::Messages, path: &Path<'_>, errors: &mut Errors) {
    let mut labels = text.split('.').map(|label| (label, rule(label)));
    let wrong = labels.find(|(_, complaints)| !complaints.is_empty());
    for (label, complaint) in wrong.iter().flat_map(|(label, all)| all.iter().map(move |one| (label, one))) {
        errors.invalid(path, text, format!("validating label {label:?}: {complaint}"));
    }
}

fn check_conditions(request: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("conditions");
    let may_be_both = [APPROVED, DENIED].iter().all(|kind| conditions(old, kind).next().is_some());
    let may_be_unnamed = types(old).any(str::is_empty);
    let may_repeat = has_repeated(types(old));
    let mut decided: Option<&str> = None;
    let mut seen = Seen::new();
    for (index, condition) in request.at("status").list("conditions").iter().enumerate() {
        let (kind, item) = (condition.text("type"), path.index(index));
        if kind.is_empty() && !may_be_unnamed {
            errors.required(&item.child("type"), "");
        }
        check_condition_status(condition, &item.child("status"), errors);
        if !may_be_both && [APPROVED, DENIED].contains(&kind) {
            if decided.is_some_and(|decided| decided != kind) {
                errors.invalid(&path, kind, "Approved and Denied conditions are mutually exclusive");
            }
            decided = decided.or(Some(kind));
        }
        if seen.again(kind) && !may_repeat {
            errors.duplicate(&item.child("type"), kind);
        }
    }
}

fn check_condition_status(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    let is_final = [APPROVED, DENIED, FAILED].contains(&condition.text("type"));
    let supported: &[&str] = if is_final { &["True"] } else { &["False", "True", "Unknown"] };
    crate::validation::choice(condition.text("status"), supported, path, errors);
}

fn check_certificate(status: &Value, old: &Value, errors: &mut Errors) {
    let certificate = status.text("certificate");
    let is_old = !old.is_null() && certificate == old.text("certificate");
    let was_wrong =
        !old.text("certificate").is_empty() && problem_of_certificates(&bytes(old, "certificate")).is_some();
    if certificate.is_empty() || is_old || was_wrong {
        return;
    }
    if let Some(problem) = problem_of_certificates(&bytes(status, "certificate")) {
        let path = Path::root("status");
        errors.invalid(&path.child("certificate"), "<certificate data>", problem);
    }
}

/// Validates an update through an endpoint with limited permissions.
pub(super) fn check_change(new: &Value, old: &Value, allowed: Allowed) -> Errors {
    let mut errors = Errors::default();
    errors.extend(crate::metadata::validate(new, false, NameRule::PathSegment));
    check(new, old, &mut errors);
    let status = Path::root("status");
    let path = status.child("conditions");
    for kind in [APPROVED, DENIED, FAILED] {
        if conditions(new, kind).count() < conditions(old, kind).count() {
            errors.forbidden(&path, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    if allowed != Allowed::Approval {
        check_approval_unchanged(new, old, &path, &mut errors);
    }
    let certificate = |request: &Value| request.at("status").text("certificate").to_owned();
    if certificate(new) != certificate(old) {
        let path = status.child("certificate");
        if allowed != Allowed::Certificate {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !certificate(old).is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
    metadata::change(new, &mut errors);
    errors
}

fn check_approval_unchanged(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    for kind in [APPROVED, DENIED] {
        let (now, before): (Vec<&Value>, Vec<&Value>) =
            (conditions(new, kind).collect(), conditions(old, kind).collect());
        if now.len() > before.len() {
            errors.forbidden(path, format!("updates may not add a condition of type {kind:?}"));
        } else if now.len() == before.len() && now != before {
            let list =
                |conditions: &[&Value]| Value::Array(conditions.iter().map(|c| (*c).clone()).collect());
            let changes = difference("[]CertificateSigningRequestCondition", &list(&before), &list(&now));
            errors.forbidden(path, format!("updates may not modify a condition of type {kind:?}\n{changes}"));
        }
    }
}
