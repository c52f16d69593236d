//! Common code of both webhook kinds: defaults, rules, and client configuration.

use serde_json::Value;

use super::expressions::{Compiler, ExtraVariables};
use super::matching::{
    FAILURE_POLICIES, MATCH_POLICIES, check_conditions, check_rule, default_rules, default_selection,
};
use super::url;
use crate::cel::Type;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::names;
use crate::strategy::{NameRule, Semantics};
use crate::table::Column;
use crate::validation::labels::{self, Values};
use crate::validation::{Seen, add_invalid, optional_choice};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const SELECTORS: [&str; 2] = ["namespaceSelector", "objectSelector"];

/// A CA bundle may be set to nothing, which is not the same as unset: whether a configuration changes is decided by all
/// that is stored of it.
pub(super) fn semantics() -> Semantics {
    Semantics { unconditional_update: false, hides: Some(hide_empty_bundles), ..Semantics::default() }
}

fn hide_empty_bundles(configuration: &mut Value) {
    for webhook in configuration.list_mut("webhooks") {
        if let Some(client) = webhook.at_mut("clientConfig").filter(|client| client.at("caBundle") == "") {
            client.unset("caBundle");
        }
    }
}

pub(super) fn default(webhook: &mut Value) {
    webhook.or_insert("failurePolicy", "Fail");
    default_selection(webhook);
    webhook.or_insert("timeoutSeconds", 10);
    default_rules(webhook.list_mut("rules"));
    let service = webhook.at_mut("clientConfig").and_then(|config| config.at_mut("service"));
    if let Some(service) = service {
        service.or_insert("port", 443);
    }
}

/// Rules to relax for a configuration that was stored before they existed.
struct Leniency {
    side_effects: bool,
    review_versions: bool,
    repeated_names: bool,
    selectors: Values,
    /// Validates conditions only if they change.
    conditions: bool,
}

impl Leniency {
    fn towards(old: Option<&Value>, new: &Value) -> Self {
        let Some(old) = old else {
            return Self {
                side_effects: false,
                review_versions: false,
                repeated_names: false,
                selectors: Values::Checked,
                conditions: false,
            };
        };
        let hooks = old.list("webhooks");
        let mut names = Seen::new();
        Self {
            side_effects: hooks.iter().any(|hook| !NO_SIDE_EFFECTS.contains(&hook.text("sideEffects"))),
            review_versions: hooks.iter().any(|hook| {
                let versions = hook.list("admissionReviewVersions");
                !versions.is_empty() && !versions.iter().any(is_known_version)
            }),
            repeated_names: hooks.iter().any(|hook| names.again(hook.text("name"))),
            selectors: if hooks.iter().any(has_bad_selector) { Values::Unchecked } else { Values::Checked },
            conditions: has_same_conditions(new.list("webhooks"), hooks),
        }
    }
}

fn is_known_version(version: &Value) -> bool {
    version.as_str().is_some_and(|version| REVIEW_VERSIONS.contains(&version))
}

fn has_bad_selector(hook: &Value) -> bool {
    let mut errors = Errors::default();
    for field in SELECTORS {
        labels::selector(hook.at(field), Values::Checked, &Path::root(field), &mut errors);
    }
    !errors.is_empty()
}

fn has_same_conditions(new: &[Value], old: &[Value]) -> bool {
    let same = |(new, old): (&Value, &Value)| new.at("matchConditions") == old.at("matchConditions");
    new.len() == old.len() && new.iter().zip(old).all(same)
}

pub(super) fn columns() -> Vec<Column> {
    const WEBHOOKS: &str = "Webhooks indicates the number of webhooks registered in this configuration";
    vec![
        Column::name(),
        Column::integer("Webhooks", WEBHOOKS, |configuration, _| configuration.list("webhooks").len().into()),
        Column::age(),
    ]
}

/// Validates a new configuration.
pub(super) fn check_new(configuration: &Value) -> Errors {
    let mut errors = Errors::default();
    check_all(configuration, None, &mut errors);
    errors
}

/// Validates a changed configuration.
pub(super) fn check_change(new: &Value, old: &Value) -> Errors {
    let mut errors = metadata::validate(new, false, NameRule::Subdomain);
    check_all(new, Some(old), &mut errors);
    errors
}

/// Validates all webhooks in a configuration.
fn check_all(configuration: &Value, old: Option<&Value>, errors: &mut Errors) {
    let leniency = Leniency::towards(old, configuration);
    let path = Path::root("webhooks");
    let mut names = Seen::new();
    for (index, hook) in configuration.list("webhooks").iter().enumerate() {
        let path = path.index(index);
        check(hook, &leniency, &path, errors);
        check_review_versions(hook, &leniency, &path.child("admissionReviewVersions"), errors);
        let name = hook.text("name");
        if !name.is_empty() && names.again(name) && !leniency.repeated_names {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

fn check(hook: &Value, leniency: &Leniency, path: &Path<'_>, errors: &mut Errors) {
    check_name(hook.text("name"), &path.child("name"), errors);
    let rules = path.child("rules");
    for (index, rule) in hook.list("rules").iter().enumerate() {
        check_rule(rule, &rules.index(index), errors);
    }
    optional_choice(hook, "failurePolicy", &FAILURE_POLICIES, path, errors);
    optional_choice(hook, "matchPolicy", &MATCH_POLICIES, path, errors);
    let allowed: &[&str] = if leniency.side_effects { &SIDE_EFFECTS } else { &NO_SIDE_EFFECTS };
    if !hook.has("sideEffects") {
        let detail = format!("must specify one of {}", allowed.join(", "));
        errors.required(&path.child("sideEffects"), detail);
    }
    optional_choice(hook, "sideEffects", allowed, path, errors);
    if let Some(seconds) = hook.int("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, detail);
    }
    for field in SELECTORS {
        labels::selector(hook.at(field), leniency.selectors, &path.child(field), errors);
    }
    optional_choice(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    check_client(hook.at("clientConfig"), &path.child("clientConfig"), errors);
    if !leniency.conditions {
        let compiler = Compiler::new(false);
        let about = ExtraVariables { authorizer: true, ..ExtraVariables::default() };
        let check = |text: &str, path: &Path<'_>, errors: &mut Errors| {
            compiler.check(text, about, &[Type::Bool], path, errors);
        };
        check_conditions(hook, check, path, errors);
    }
}

/// Validates a name, which must have at least three parts.
fn check_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !complaints.is_empty() {
        errors.invalid(path, name, complaints.join(","));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(path, name, detail);
    }
}

fn check_review_versions(hook: &Value, leniency: &Leniency, path: &Path<'_>, errors: &mut Errors) {
    let versions = hook.list("admissionReviewVersions");
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        return errors.required(path, format!("must specify one of {known}"));
    }
    let mut seen = Seen::new();
    for (index, version) in versions.iter().filter_map(Value::as_str).enumerate() {
        let path = path.index(index);
        match seen.again(version) {
            true => errors.invalid(&path, version, "duplicate version"),
            false => add_invalid(names::dns_1035_label(version), version, &path, errors),
        }
    }
    if !leniency.review_versions && !versions.iter().any(is_known_version) {
        errors.invalid(path, versions.to_vec(), format!("must include at least one of {known}"));
    }
}

/// Validates the `clientConfig` of a webhook.
pub(in crate::kinds) fn check_client(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (config.at("url").as_str(), config.has("service")) {
        (Some(url), false) => check_url(url, &path.child("url"), errors),
        (None, true) => check_service(config.at("service"), &path.child("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

/// Validates the parts of a URL that matter here.
fn check_url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    if let Some(why) = url::mistake(url) {
        return errors.required(path, format!("url must be a valid URL: parse {url:?}: {why}{FORM}"));
    }
    let (scheme, rest) = before.split_once(':').unwrap_or(("", before));
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let scheme = scheme.to_lowercase();
    if scheme != "https" {
        errors.invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(path, host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn check_service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    // v1.34 swaps the two fields here.
    for (field, named) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(field).is_empty() {
            errors.required(&path.child(named), "");
        }
    }
    let port = service.count("port");
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.invalid(&path.child("port"), port, detail);
    }
    if let Some(text) = service.at("path").as_str() {
        check_service_path(text, &path.child("path"), errors);
    }
}

fn check_service_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    match text {
        "" | "/" => return,
        "//" => return errors.invalid(path, text, "segment[0] may not be empty"),
        _ => {}
    }
    if !text.starts_with('/') {
        errors.invalid(path, text, "must start with a '/'");
    }
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (index, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(path, text, format!("segment[{index}] may not be empty"));
            continue;
        }
        for complaint in names::dns_subdomain(segment) {
            errors.invalid(path, text, format!("segment[{index}]: {complaint}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hook(change: impl FnOnce(&mut Value)) -> Value {
        let mut hook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://a.io/x"}});
        change(&mut hook);
        default(&mut hook);
        json!({"webhooks": [hook]})
    }

    fn complaints(configuration: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Errors::default();
        check_all(configuration, old, &mut errors);
        errors.0.iter().map(|error| format!("{:?} {}", error.reason, error.field)).collect()
    }

    fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
        let configuration = hook(change);
        assert_eq!(complaints(&configuration, None), expected, "{configuration}");
    }

    #[test]
    fn a_webhook_has_review_versions_and_side_effects() {
        check(|_| (), &[]);
        check(
            |hook| {
                hook.set("name", "a.b");
                hook.set("sideEffects", "Some");
                hook.set("admissionReviewVersions", json!(["v2", "v2"]));
                hook.set("timeoutSeconds", 31);
                hook.set("failurePolicy", "X");
                hook.set("reinvocationPolicy", "X");
            },
            &[
                "Invalid webhooks[0].name",
                "NotSupported webhooks[0].failurePolicy",
                "NotSupported webhooks[0].sideEffects",
                "Invalid webhooks[0].timeoutSeconds",
                "NotSupported webhooks[0].reinvocationPolicy",
                "Invalid webhooks[0].admissionReviewVersions[1]",
                "Invalid webhooks[0].admissionReviewVersions",
            ],
        );
    }

    #[test]
    fn a_webhook_is_called_by_url_or_as_a_service() {
        let config = "webhooks[0].clientConfig";
        let set = |config: Value| move |hook: &mut Value| hook.set("clientConfig", config);
        check(set(json!({})), &[&format!("Required {config}")]);
        check(set(json!({"url": "https://a", "service": {}})), &[&format!("Required {config}")]);
        for url in ["http://a", "https:///x", "https://u@a", "https://a#x", "https://a?x"] {
            check(set(json!({"url": url})), &[&format!("Invalid {config}.url")]);
        }
        check(set(json!({"service": {"name": "a", "namespace": "b", "path": "/x/y/"}})), &[]);
        check(
            set(json!({"service": {"name": "a", "port": 0x1_0000, "path": "/x//A"}})),
            &[
                &format!("Required {config}.service.name"),
                &format!("Invalid {config}.service.port"),
                &format!("Invalid {config}.service.path"),
                &format!("Invalid {config}.service.path"),
            ],
        );
    }

    #[test]
    fn rules_name_each_resource_once() {
        let rule = |resources: Value| {
            move |hook: &mut Value| {
                let rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": resources});
                hook.set("rules", json!([rule]));
            }
        };
        let path = "webhooks[0].rules[0]";
        check(rule(json!(["pods", "pods/*", "*/scale"])), &[]);
        check(rule(json!(["pods/*", "pods/log"])), &[&format!("Invalid {path}.resources[1]")]);
        check(rule(json!(["*/*", "a"])), &[&format!("Invalid {path}.resources")]);
        check(rule(json!(["*", "a"])), &[&format!("Invalid {path}.resources")]);
        check(
            |hook| hook.set("rules", json!([{"operations": ["*", "CREATE", "X"], "scope": "X"}])),
            &[
                &format!("Invalid {path}.operations"),
                &format!("NotSupported {path}.operations[2]"),
                &format!("Required {path}.apiGroups"),
                &format!("Required {path}.apiVersions"),
                &format!("Required {path}.resources"),
                &format!("NotSupported {path}.scope"),
            ],
        );
    }

    #[test]
    fn existing_errors_may_stay() {
        let old = hook(|hook| hook.set("sideEffects", "Some"));
        assert!(complaints(&old, Some(&old)).is_empty());
    }
}
