//! Validates the configuration of issuers, field by field, with v1.34's messages in v1.34's order.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_cel::Program;

use super::config::{
    ClaimRule, ExtraMapping, IssuerConfig, Mapping, Mappings, RawAnonymous, RawIssuer, UserRule,
};
use super::rules;
use crate::field::{Errors, Path, Reason};
use crate::names;

const ISSUERS: usize = 64;

/// The variables that the expressions use.
#[derive(Default)]
struct Uses {
    email: bool,
    email_verified: bool,
}

impl Uses {
    fn note(&mut self, program: &Program) {
        self.email_verified |= program.selects("claims", "email_verified");
    }
}

pub(super) fn all(issuers: &[IssuerConfig], own: &[String], errors: &mut Errors) {
    let root = Path::root("jwt");
    if issuers.len() > ISSUERS {
        let detail = format!("must have at most {ISSUERS} items");
        errors.push(Reason::TooMany, &root, Some(Value::from(issuers.len())), detail);
        return;
    }
    let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
    for (at, config) in issuers.iter().enumerate() {
        let path = root.index(at);
        one(config, own, &path, errors);
        let RawIssuer { url, discovery_url, .. } = &config.issuer;
        if !urls.insert(url) {
            errors.duplicate(&path.child("issuer").child("url"), url.as_str());
        }
        if !discovery_url.is_empty() && !discovery_urls.insert(discovery_url) {
            errors.duplicate(&path.child("issuer").child("discoveryURL"), discovery_url.as_str());
        }
    }
}

pub(super) fn anonymous(written: Option<&RawAnonymous>, errors: &mut Errors) {
    let Some(written) = written else { return };
    if !written.enabled && !written.conditions.is_empty() {
        let shown: Vec<Value> =
            written.conditions.iter().map(|condition| json!({"path": condition.path})).collect();
        let detail = "enabled should be set to true when conditions are defined";
        errors.invalid(&Path::root("anonymous").child("conditions"), shown, detail);
    }
}

fn one(config: &IssuerConfig, own: &[String], path: &Path<'_>, errors: &mut Errors) {
    let mut uses = Uses::default();
    issuer(&config.issuer, own, &path.child("issuer"), errors);
    claim_rules(&config.claim_validation_rules, &mut uses, &path.child("claimValidationRules"), errors);
    mappings(&config.claim_mappings, &mut uses, &path.child("claimMappings"), errors);
    user_rules(&config.user_validation_rules, &path.child("userValidationRules"), errors);
}

fn issuer(issuer: &RawIssuer, own: &[String], path: &Path<'_>, errors: &mut Errors) {
    match issuer.url.as_str() {
        "" => errors.required(&path.child("url"), ""),
        text => url(text, own, &path.child("url"), errors),
    }
    let discovery = issuer.discovery_url.as_str();
    if !discovery.is_empty() {
        let path = path.child("discoveryURL");
        if !issuer.url.is_empty() && issuer.url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            errors.invalid(&path, discovery, "discoveryURL must be different from URL");
        }
        url(discovery, &[], &path, errors);
    }
    audiences(issuer, path, errors);
    let authority = issuer.certificate_authority.as_str();
    if !authority.is_empty() && !holds_certificates(authority) {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        errors.invalid(&path.child("certificateAuthority"), "<omitted>", detail);
    }
    let egress = issuer.egress_selector_type.as_str();
    if !matches!(egress, "" | "controlplane" | "cluster") {
        let detail = "egress selector must be either controlplane or cluster";
        errors.invalid(&path.child("egressSelectorType"), egress, detail);
    }
}

fn holds_certificates(pem: &str) -> bool {
    let blocks: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect();
    !blocks.is_empty() && blocks.iter().all(|block| x509_parser::parse_x509_certificate(block).is_ok())
}

fn url(text: &str, forbidden: &[String], path: &Path<'_>, errors: &mut Errors) {
    if forbidden.iter().any(|own| own == text) {
        let mut forbidden = forbidden.to_vec();
        forbidden.sort_unstable();
        let detail = format!("URL must not overlap with disallowed issuers: [{}]", forbidden.join(" "));
        errors.invalid(path, text, detail);
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with("https://") {
        errors.invalid(path, text, "URL scheme must be https");
    }
    let authority = rest.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    if authority.contains('@') {
        errors.invalid(path, text, "URL must not contain a username or password");
    }
    if !query.is_empty() {
        errors.invalid(path, text, "URL must not contain a query");
    }
    if !fragment.is_empty() {
        errors.invalid(path, text, "URL must not contain a fragment");
    }
    if rest.starts_with("https://") && rest.parse::<http::Uri>().is_err() {
        errors.invalid(path, text, "URL cannot be parsed");
    }
}

fn audiences(issuer: &RawIssuer, path: &Path<'_>, errors: &mut Errors) {
    let (field, policy) = (path.child("audiences"), issuer.audience_match_policy.as_str());
    if issuer.audiences.is_empty() {
        errors.required(&field, format!("at least one {field} is required"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, audience) in issuer.audiences.iter().enumerate() {
        if audience.is_empty() {
            errors.required(&field.index(at), "");
        }
        if !seen.insert(audience) {
            errors.duplicate(&field.index(at), audience.as_str());
        }
    }
    let path = path.child("audienceMatchPolicy");
    match issuer.audiences.len() {
        1 if !matches!(policy, "" | "MatchAny") => {
            errors.invalid(
                &path,
                policy,
                "audienceMatchPolicy must be empty or MatchAny for single audience",
            );
        }
        2.. if policy != "MatchAny" => {
            errors.invalid(&path, policy, "audienceMatchPolicy must be MatchAny for multiple audiences");
        }
        _ => {}
    }
}

fn claim_rules(rules: &[ClaimRule], uses: &mut Uses, path: &Path<'_>, errors: &mut Errors) {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at);
        let ClaimRule { claim, required_value, expression, message } = rule;
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => {
                errors.invalid(&path, claim.as_str(), "claim and expression can't both be set");
            }
            (true, true) => errors.required(&path, "claim or expression is required"),
            (false, true) => {
                if !message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.invalid(&path.child("message"), message.as_str(), detail);
                }
                if !claims.insert(claim) {
                    errors.duplicate(&path.child("claim"), claim.as_str());
                }
            }
            (true, false) => {
                if !required_value.is_empty() {
                    let detail = "may not be specified when expression is set";
                    errors.invalid(&path.child("requiredValue"), required_value.as_str(), detail);
                }
                let path = path.child("expression");
                if !expressions.insert(expression) {
                    errors.duplicate(&path, expression.as_str());
                    continue;
                }
                match rules::about_claims(expression).and_then(rules::condition) {
                    Ok(program) => uses.note(&program),
                    Err(why) => errors.invalid(&path, expression.as_str(), why),
                }
            }
        }
    }
}

fn mappings(mappings: &Mappings, uses: &mut Uses, path: &Path<'_>, errors: &mut Errors) {
    let username = mapping(&mappings.username, true, &path.child("username"), errors);
    if let Some(program) = username {
        uses.email |= program.selects("claims", "email");
        uses.note(&program);
    }
    mapping(&mappings.groups, false, &path.child("groups"), errors);
    let (uid, uid_path) = (&mappings.uid, path.child("uid"));
    if !uid.claim.is_empty() && !uid.expression.is_empty() {
        errors.invalid(&uid_path, "", "claim and expression can't both be set");
    } else if !uid.expression.is_empty()
        && let Err(why) = rules::about_claims(&uid.expression)
    {
        errors.invalid(&uid_path.child("expression"), uid.expression.as_str(), why);
    }
    extra(&mappings.extra, uses, &path.child("extra"), errors);
    if uses.email && !uses.email_verified {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
        let expression = mappings.username.expression.as_str();
        errors.invalid(&path.child("username").child("expression"), expression, detail);
    }
}

fn mapping(mapping: &Mapping, is_required: bool, path: &Path<'_>, errors: &mut Errors) -> Option<Program> {
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") if is_required => errors.required(path, "claim or expression is required"),
        ("", "") => {}
        ("", expression) => {
            if let Some(prefix) = &mapping.prefix {
                let detail = "may not be specified when expression is set";
                errors.invalid(&path.child("prefix"), prefix.as_str(), detail);
            }
            match rules::about_claims(expression) {
                Ok(program) => return Some(program),
                Err(why) => errors.invalid(&path.child("expression"), expression, why),
            }
        }
        (_, "") if mapping.prefix.is_none() => {
            let detail =
                "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            errors.required(&path.child("prefix"), detail);
        }
        (_, "") => {}
        _ => errors.invalid(path, "", "claim and expression can't both be set"),
    }
    None
}

fn extra(mappings: &[ExtraMapping], uses: &mut Uses, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (at, ExtraMapping { key, value_expression }) in mappings.iter().enumerate() {
        let item = path.index(at);
        extra_key(key, &item.child("key"), errors);
        if !seen.insert(key) {
            errors.duplicate(&item.child("key"), key.as_str());
            continue;
        }
        let path = item.child("valueExpression");
        if value_expression.is_empty() {
            errors.required(&path, "");
            continue;
        }
        match rules::about_claims(value_expression) {
            Ok(program) => uses.note(&program),
            Err(why) => errors.invalid(&path, value_expression.as_str(), why),
        }
    }
}

fn extra_key(key: &str, path: &Path<'_>, errors: &mut Errors) {
    const PATH: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
    let is_path =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b));
    match key.split_once('/') {
        _ if key.is_empty() => errors.required(path, ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            for complaint in names::dns_subdomain(host) {
                errors.invalid(path, host, complaint);
            }
            if !is_path(rest) {
                errors.invalid(path, rest, format!("Invalid path (regex used for validation is '{PATH}')"));
            }
        }
        _ => errors.invalid(path, key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if key.chars().any(char::is_uppercase) {
        errors.invalid(path, key, "must be lowercase");
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    if is_in("kubernetes.io") || is_in("k8s.io") {
        let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.invalid(path, key, detail);
    }
}

fn user_rules(rules: &[UserRule], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (at, rule) in rules.iter().enumerate() {
        let item = path.index(at);
        let path = item.child("expression");
        let expression = rule.expression.as_str();
        if expression.is_empty() {
            errors.required(&path, "");
        } else if !seen.insert(expression) {
            errors.duplicate(&path, expression);
        } else if let Err(why) = rules::about_user(expression).and_then(rules::condition) {
            errors.invalid(&path, expression, why);
        }
    }
}
