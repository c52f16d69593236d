//! ClusterTrustBundles: CAs that pods may trust. Served if the feature is enabled.

use serde_json::Value;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificatesigningrequest::check_signer;
use super::{CERTIFICATES_V1BETA1, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{FieldSelector, Kind, Scope};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::{Column, or_none};
use crate::validation::{add_invalid, immutable, too_long};

const MAX_BYTES: usize = 1 << 20;
const SIGNER: &str = "signerName indicates the associated signer, if any.";

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            Column::text("SignerName", SIGNER, |bundle, _| or_none(bundle.at("spec").text("signerName"))),
        ],
        field_selectors: vec![FieldSelector {
            path: "spec.signerName",
            value: |bundle| bundle.at("spec").text("signerName").to_owned(),
        }],
        semantics: Semantics {
            names: NameRule::PathSegment,
            counts_generations: false,
            unconditional_update: false,
            ..Semantics::default()
        },
        ..entry(&CERTIFICATES_V1BETA1, "ClusterTrustBundle", "clustertrustbundles", ClusterTrustBundle)
    }
}

struct ClusterTrustBundle;

impl Lifecycle for ClusterTrustBundle {}

impl Validation for ClusterTrustBundle {
    fn validate(&self, bundle: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(bundle, &mut errors);
        check(bundle, &mut errors);
        check_anchors(bundle.at("spec").text("trustBundle"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check(new, &mut errors);
        let (text, before) = (new.at("spec").text("trustBundle"), old.at("spec").text("trustBundle"));
        // Unchanged values stay valid.
        if text != before {
            check_anchors(text, &mut errors);
        }
        let path = Path::root("spec");
        let (signer, before) = (new.at("spec").at("signerName"), old.at("spec").at("signerName"));
        immutable(signer, before, &path.child("signerName"), &mut errors);
        errors
    }
}

/// Checks that the name of a signer's bundle starts with the signer's name.
fn check(bundle: &Value, errors: &mut Errors) {
    let (name, signer) = (bundle.at("metadata").text("name"), bundle.at("spec").text("signerName"));
    let metadata = Path::root("metadata");
    let path = metadata.child("name");
    if signer.is_empty() {
        match name.contains(':') {
            true => {
                let detail = "ClusterTrustBundle without signer name must not have \":\" in its name";
                errors.invalid(&path, name, detail);
            }
            false => add_invalid(names::dns_subdomain(name), name, &path, errors),
        }
        return;
    }
    let prefix = signer.replace('/', ":") + ":";
    match name.strip_prefix(&prefix) {
        Some(rest) => add_invalid(names::dns_subdomain(rest), name, &path, errors),
        None => {
            let detail =
                format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
            errors.invalid(&path, name, detail);
        }
    }
    check_signer(signer, &Path::root("spec").child("signerName"), errors);
}

/// Validates CA certificates: at least one, without duplicates.
fn check_anchors(text: &str, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("trustBundle");
    if text.len() > MAX_BYTES {
        return too_long(MAX_BYTES, &path, errors);
    }
    let mut anchors: Vec<Vec<u8>> = Vec::new();
    let mut wrong = false;
    for (index, block) in Pem::iter_from_buffer(text.as_bytes()).map_while(Result::ok).enumerate() {
        if let Some(problem) = problem_of(&block) {
            errors.invalid(&path, "<value omitted>", format!("entry {index} {problem}"));
            wrong = true;
        }
        anchors.push(block.contents);
    }
    if wrong {
        return;
    }
    if anchors.is_empty() {
        errors.invalid(&path, "<value omitted>", "at least one trust anchor must be provided");
    }
    for (index, anchor) in anchors.iter().enumerate() {
        let same: Vec<String> = anchors
            .iter()
            .enumerate()
            .filter(|(_, other)| *other == anchor)
            .map(|(at, _)| at.to_string())
            .collect();
        if same.len() > 1 && same[0] == index.to_string() {
            let detail = format!("duplicate trust anchor (indices [{}])", same.join(" "));
            errors.invalid(&path, "<value omitted>", detail);
        }
    }
}

fn problem_of(block: &Pem) -> Option<String> {
    if block.label != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.label));
    }
    let Ok((_, certificate)) = X509Certificate::from_der(&block.contents) else {
        return Some("does not parse as X.509".into());
    };
    (!certificate.is_ca()).then(|| "does not have the CA bit set".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::check;
    use crate::tls::Authority;

    #[test]
    fn a_bundle_holds_authorities_and_is_named_after_its_signer() {
        let now = "2025-01-01T00:00:00Z".parse().unwrap();
        let authority = Authority::generate(now).unwrap();
        let ca = authority.identity().certificate.clone();
        let bundle = |name: &str, signer: &str, text: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": text}});
        let strategy = &ClusterTrustBundle;
        check::create(strategy, bundle("a", "", &ca), &[]);
        check::create(strategy, bundle("example.com:s:a", "example.com/s", &ca), &[]);
        let check_name = |name: &str, signer: &str, wrong: usize| {
            let errors = strategy.validate(&bundle(name, signer, &ca));
            assert_eq!(errors.0.len(), wrong, "{name} {signer}");
        };
        check_name("a", "example.com/s", 1);
        check_name("a:b", "", 1);
        let wrong = &["Invalid spec.trustBundle"];
        check::create(strategy, bundle("a", "", ""), wrong);
        check::create(strategy, bundle("a", "", &format!("{ca}{ca}")), wrong);
        let leaf = authority.client_certificate("x", &[], now).unwrap().certificate;
        check::create(strategy, bundle("a", "", &leaf), wrong);
        let old = bundle("example.com:s:a", "example.com/s", &ca);
        check::update(
            strategy,
            bundle("example.com:s:a", "example.com/t", &ca),
            &old,
            &["Invalid spec.signerName"],
        );
    }
}
