//! The list of authorizers, from `--authorization-config` or from the older flags.
//!
//! A file is validated as a whole, with v1.34's errors, before any of it takes effect.

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::access_webhook::WebhookOptions;
use super::aggregate::aggregate;
use super::authorize::Verdict;
use super::config_file::{self, ConfigError};
use super::match_conditions;
use crate::field::{Errors, Path, Reason};
use crate::names;

/// The named authorizers, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfig {
    pub authorizers: Vec<(String, AuthorizerKind)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizerKind {
    Node,
    Rbac,
    AlwaysAllow,
    AlwaysDeny,
    Webhook(WebhookOptions),
}

/// A webhook configured with the older flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigSource {
    pub kubeconfig: PathBuf,
    pub version: String,
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
}

/// All authorizer types that v1.34 knows.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const MATCH_CONDITIONS: usize = 64;
const LEGACY_TIMEOUT: Duration = Duration::from_secs(30);
const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConfig {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    authorizers: Vec<RawAuthorizer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawAuthorizer {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    webhook: Option<RawWebhook>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawWebhook {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: GoDuration,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: GoDuration,
    cache_unauthorized_requests: Option<bool>,
    timeout: GoDuration,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfo,
    match_conditions: Vec<RawCondition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConnectionInfo {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCondition {
    expression: String,
}

/// A duration in Go syntax, with its sign.
#[derive(Clone, Copy, Default)]
struct GoDuration {
    length: Duration,
    is_negative: bool,
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let length =
            setpoint_cron::duration(text.trim_start_matches('-')).map_err(serde::de::Error::custom)?;
        Ok(Self { length, is_negative: text.starts_with('-') && !length.is_zero() })
    }
}

impl GoDuration {
    fn is_unset(self) -> bool {
        self.length.is_zero()
    }

    fn or(self, default: Duration) -> Duration {
        if self.is_unset() { default } else { self.length }
    }

    fn shown(self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        format!("{sign}{}", setpoint_webhook::go_duration(self.length))
    }
}

impl AuthorizerKind {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Webhook(_) => "Webhook",
        }
    }
}

impl AuthorizationConfig {
    /// Parses a configuration file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let written: RawConfig = config_file::read(text, "AuthorizationConfiguration").map_err(|why| {
            ConfigError(format!("failed to load AuthorizationConfiguration from file: {why}"))
        })?;
        let mut errors = Errors::default();
        check(&written.authorizers, &mut errors);
        config_file::refuse(&errors)?;
        check_names(&written.authorizers)?;
        let authorizers = written.authorizers.into_iter().map(RawAuthorizer::build);
        Ok(Self { authorizers: authorizers.collect::<Result<_, _>>()? })
    }

    /// Builds the configuration from `--authorization-mode` and, for the `Webhook` mode, the webhook flags.
    pub fn from_modes(modes: &[String], webhook: Option<&KubeconfigSource>) -> Result<Self, ConfigError> {
        let distinct: BTreeSet<&String> = modes.iter().collect();
        let mut problems = Vec::new();
        if modes.is_empty() {
            problems.push("at least one authorization-mode must be passed".to_owned());
        }
        for mode in modes {
            match mode.as_str() {
                "ABAC" => {
                    problems.push("--authorization-mode: ABAC is not supported, use RBAC or Webhook".into())
                }
                "Webhook" if webhook.is_none() => {
                    problems.push("authorization-mode Webhook's authorization config file not passed".into())
                }
                mode if !TYPES.contains(&mode) => {
                    problems.push(format!("authorization-mode {mode:?} is not a valid mode"));
                }
                _ => {}
            }
        }
        if webhook.is_some() && !modes.iter().any(|mode| mode == "Webhook") {
            problems.push("cannot specify --authorization-webhook-config-file without mode Webhook".into());
        }
        if distinct.len() != modes.len() {
            problems.push(format!("authorization-mode {modes:?} has mode specified more than once"));
        }
        if let Some(why) = aggregate(&problems) {
            return Err(ConfigError(why));
        }
        let authorizers = modes.iter().filter_map(|mode| {
            let kind = match mode.as_str() {
                "Webhook" => {
                    return Some(("default".to_owned(), AuthorizerKind::Webhook(webhook?.options())));
                }
                mode => simple(mode)?,
            };
            Some((mode.to_lowercase(), kind))
        });
        Ok(Self { authorizers: authorizers.collect() })
    }

    /// Returns the types that a reload must keep: all but webhooks.
    pub(super) fn types(&self) -> Vec<&'static str> {
        let kinds = self.authorizers.iter().map(|(_, kind)| kind.name());
        kinds.filter(|kind| *kind != "Webhook").collect()
    }
}

impl KubeconfigSource {
    fn options(&self) -> WebhookOptions {
        WebhookOptions {
            kubeconfig: self.kubeconfig.clone(),
            authorized_ttl: self.authorized_ttl,
            unauthorized_ttl: self.unauthorized_ttl,
            timeout: LEGACY_TIMEOUT,
            version: self.version.clone(),
            on_error: Verdict::NoOpinion,
            match_conditions: Vec::new(),
        }
    }
}

fn simple(kind: &str) -> Option<AuthorizerKind> {
    Some(match kind {
        "Node" => AuthorizerKind::Node,
        "RBAC" => AuthorizerKind::Rbac,
        "AlwaysAllow" => AuthorizerKind::AlwaysAllow,
        "AlwaysDeny" => AuthorizerKind::AlwaysDeny,
        _ => return None,
    })
}

impl RawAuthorizer {
    fn build(self) -> Result<(String, AuthorizerKind), ConfigError> {
        let kind = match self.webhook {
            Some(webhook) => AuthorizerKind::Webhook(webhook.build()?),
            None => simple(&self.kind).ok_or_else(|| {
                ConfigError(format!("authorizer type {} is not supported: use RBAC or Webhook", self.kind))
            })?,
        };
        Ok((self.name, kind))
    }
}

impl RawWebhook {
    fn build(self) -> Result<WebhookOptions, ConfigError> {
        let Some(kubeconfig) = self.connection_info.kube_config_file else {
            return Err(ConfigError(format!(
                "connectionInfo type {} is not supported: use KubeConfigFile",
                self.connection_info.kind
            )));
        };
        let kept =
            |ttl: Duration, caches: Option<bool>| if caches == Some(false) { Duration::ZERO } else { ttl };
        Ok(WebhookOptions {
            kubeconfig: kubeconfig.into(),
            authorized_ttl: kept(self.authorized_ttl.or(AUTHORIZED_TTL), self.cache_authorized_requests),
            unauthorized_ttl: kept(
                self.unauthorized_ttl.or(UNAUTHORIZED_TTL),
                self.cache_unauthorized_requests,
            ),
            timeout: self.timeout.length,
            version: self.subject_access_review_version,
            on_error: if self.failure_policy == "Deny" { Verdict::Deny } else { Verdict::NoOpinion },
            match_conditions: self
                .match_conditions
                .into_iter()
                .map(|condition| condition.expression)
                .collect(),
        })
    }
}

/// Checks that built-in authorizers have their fixed names.
fn check_names(authorizers: &[RawAuthorizer]) -> Result<(), ConfigError> {
    let wrong = authorizers.iter().filter(|one| one.kind != "Webhook" && one.name != one.kind.to_lowercase());
    let problems: Vec<String> = wrong
        .map(|one| {
            let expected = one.kind.to_lowercase();
            format!("expected name {expected} for authorizer {} instead of {}", one.kind, one.name)
        })
        .collect();
    aggregate(&problems).map_or(Ok(()), |why| Err(ConfigError(why)))
}

fn check(authorizers: &[RawAuthorizer], errors: &mut Errors) {
    let root = Path::root("authorizers");
    if authorizers.is_empty() {
        errors.required(&root, "at least one authorization mode must be defined");
    }
    let (mut types, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (at, one) in authorizers.iter().enumerate() {
        let path = root.index(at);
        let kind = one.kind.as_str();
        if kind.is_empty() {
            errors.required(&path.child("type"), "");
            continue;
        }
        if !TYPES.contains(&kind) {
            errors.not_supported(&path.child("type"), kind, &TYPES);
            continue;
        }
        if !types.insert(kind) && kind != "Webhook" {
            errors.duplicate(&path.child("type"), kind);
            continue;
        }
        check_name(&one.name, seen.contains(one.name.as_str()), &path.child("name"), errors);
        seen.insert(one.name.as_str());
        match (&one.webhook, kind) {
            (None, "Webhook") => errors.required(&path.child("webhook"), "required when type=Webhook"),
            (Some(webhook), "Webhook") => check_webhook(webhook, &path, errors),
            (Some(_), _) => {
                errors.invalid(&path.child("webhook"), "non-null", "may only be specified when type=Webhook");
            }
            (None, _) => {}
        }
    }
}

fn check_name(name: &str, is_seen: bool, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if is_seen {
        errors.duplicate(path, name);
        return;
    }
    let complaints = names::dns_subdomain(name);
    if !complaints.is_empty() {
        errors.invalid(path, name, format!("authorizer name is invalid: {}", complaints.join(", ")));
    }
}

/// Validates a webhook. The field paths are v1.34's, which leave `webhook` out.
fn check_webhook(webhook: &RawWebhook, path: &Path<'_>, errors: &mut Errors) {
    let timeout = webhook.timeout;
    if timeout.is_unset() {
        errors.required(&path.child("timeout"), "");
    } else if timeout.is_negative || timeout.length > MAX_TIMEOUT {
        errors.invalid(&path.child("timeout"), timeout.shown(), "must be > 0s and <= 30s");
    }
    let ttls = [("authorizedTTL", webhook.authorized_ttl), ("unauthorizedTTL", webhook.unauthorized_ttl)];
    for (field, ttl) in ttls.into_iter().filter(|(_, ttl)| ttl.is_negative) {
        errors.invalid(&path.child(field), ttl.shown(), "must be > 0s");
    }
    one_of(
        &webhook.subject_access_review_version,
        &["v1", "v1beta1"],
        Some(""),
        &path.child("subjectAccessReviewVersion"),
        errors,
    );
    let needs_version =
        (!webhook.match_conditions.is_empty()).then_some("required if match conditions are specified");
    let version = path.child("matchConditionSubjectAccessReviewVersion");
    one_of(&webhook.match_condition_subject_access_review_version, &["v1"], needs_version, &version, errors);
    one_of(&webhook.failure_policy, &["NoOpinion", "Deny"], Some(""), &path.child("failurePolicy"), errors);
    check_connection(&webhook.connection_info, path, errors);
    check_conditions(&webhook.match_conditions, &path.child("matchConditions"), errors);
}

/// Checks that a value is known. `required` is the error for an empty value; `None` allows it.
fn one_of(text: &str, known: &[&str], required: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    match (text, required) {
        ("", Some(detail)) => errors.required(path, detail),
        ("", None) => {}
        (text, _) if known.contains(&text) => {}
        (text, _) => errors.not_supported(path, text, known),
    }
}

fn check_connection(info: &ConnectionInfo, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("connectionInfo");
    let file = path.child("kubeConfigFile");
    match (info.kind.as_str(), info.kube_config_file.as_deref()) {
        ("", _) => errors.required(&path.child("type"), ""),
        ("InClusterConfig", Some(found)) => {
            errors.invalid(&file, found, "can only be set when type=KubeConfigFile");
        }
        ("InClusterConfig", None) => {}
        ("KubeConfigFile", None | Some("")) => errors.required(&file, ""),
        ("KubeConfigFile", Some(found)) => check_file(found, &file, errors),
        (kind, _) => {
            let known = ["InClusterConfig", "KubeConfigFile"];
            errors.not_supported(&path.child("type"), kind, &known);
        }
    }
}

fn check_file(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !FilePath::new(name).is_absolute() {
        errors.invalid(path, name, "must be an absolute path");
        return;
    }
    match std::fs::metadata(name) {
        Err(why) => errors.invalid(path, name, format!("error loading file: {why}")),
        Ok(found) if !found.is_file() => errors.invalid(path, name, "must be a regular file"),
        Ok(_) => {}
    }
}

fn check_conditions(conditions: &[RawCondition], path: &Path<'_>, errors: &mut Errors) {
    if conditions.len() > MATCH_CONDITIONS {
        let detail = format!("must have at most {MATCH_CONDITIONS} items");
        errors.push(Reason::TooMany, path, Some(Value::from(conditions.len())), detail);
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, condition) in conditions.iter().enumerate() {
        let item = path.index(at);
        let path = item.child("expression");
        let expression = condition.expression.as_str();
        if expression.trim().is_empty() {
            errors.required(&path, "");
        } else if !seen.insert(expression) {
            errors.duplicate(&path, expression);
        } else if let Err(why) = match_conditions::compile(expression) {
            errors.invalid(&path, expression, why);
        }
    }
}
