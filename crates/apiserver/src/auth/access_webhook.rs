//! Webhook authorization: posts a `SubjectAccessReview` and caches the decision.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use setpoint_clock::Clock;
use setpoint_webhook::{CallError, Client, Endpoint, Settings};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

use super::User;
use super::access_review::{self, ReviewVersion, Reviewed};
use super::authorize::{Attributes, Authorizer, Decision, UserRules, Verdict};
use super::config_file::ConfigError;
use super::expiring::Expiring;
use super::match_conditions::{MatchConditions, Matched};
use super::metrics::AuthMetrics;
use super::rbac::{MissingRole, RoleRef, Rule};
use super::union::Outbound;

/// Cache capacity, as in v1.34. An entry is a digest and a short reason, about 300 bytes, so a full cache takes 2.5
/// MB.
const CACHED: usize = 8192;
/// Decisions about requests with longer attributes than this are not cached; such requests may be an attack.
const CACHED_ATTRIBUTES: usize = 10_000;

/// Settings of a webhook authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOptions {
    pub kubeconfig: PathBuf,
    /// How long to cache an allow decision; zero disables caching.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub timeout: Duration,
    /// `v1` or `v1beta1`.
    pub version: String,
    /// The verdict if the webhook fails: `Deny` or `NoOpinion`.
    pub on_error: Verdict,
    pub match_conditions: Vec<String>,
}

pub(super) struct AccessWebhook {
    name: String,
    client: Client,
    version: ReviewVersion,
    options: WebhookOptions,
    conditions: MatchConditions,
    answers: Expiring<Reviewed>,
    clock: Clock,
    metrics: Arc<AuthMetrics>,
}

impl AccessWebhook {
    pub(super) fn new(
        name: &str,
        options: &WebhookOptions,
        outbound: &Outbound,
    ) -> Result<Self, ConfigError> {
        let failed = |why: String| ConfigError(why);
        let version = ReviewVersion::parse(&options.version).ok_or_else(|| {
            let version = &options.version;
            failed(format!(
                "unsupported webhook authorizer version {version:?}, supported versions are \"v1\", \"v1beta1\""
            ))
        })?;
        let endpoint =
            Endpoint::from_kubeconfig(&options.kubeconfig).map_err(|why| failed(why.to_string()))?;
        let settings = Settings { timeout: options.timeout, sends_timeout: true, ..Settings::default() };
        let client = outbound.client(endpoint, settings)?;
        Ok(Self {
            name: name.to_owned(),
            client,
            version,
            conditions: MatchConditions::new(&options.match_conditions).map_err(failed)?,
            options: options.clone(),
            answers: Expiring::new(CACHED),
            clock: outbound.clock.clone(),
            metrics: outbound.metrics.clone(),
        })
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let spec = access_review::spec(attributes);
        match self.matches(&spec) {
            Matched::Yes => {}
            Matched::No => {
                self.metrics.condition_excluded(&self.name);
                return Decision::no_opinion("");
            }
            Matched::Failed(why) => {
                self.metrics.condition_failed(&self.name);
                return Decision::failed(self.options.on_error, why);
            }
        }
        let key = Sha256::digest(spec.to_string()).into();
        if let Some(reviewed) = self.answers.get(&key, self.clock.instant()) {
            return conclude(reviewed);
        }
        let reviewed = match self.ask(&spec).await {
            Ok(reviewed) => reviewed,
            Err(why) => return Decision::failed(self.options.on_error, why),
        };
        if is_worth_keeping(attributes) {
            let WebhookOptions { authorized_ttl, unauthorized_ttl, .. } = self.options;
            let ttl = if reviewed.allowed { authorized_ttl } else { unauthorized_ttl };
            self.answers.set(key, reviewed.clone(), self.clock.instant(), ttl);
        }
        conclude(reviewed)
    }

    fn matches(&self, spec: &serde_json::Value) -> Matched {
        if self.conditions.is_empty() {
            return Matched::Yes;
        }
        let start = self.clock.instant();
        let matched = self.conditions.matches(spec);
        self.metrics.conditions_evaluated(&self.name, self.clock.instant().duration_since(start));
        matched
    }

    async fn ask(&self, spec: &serde_json::Value) -> Result<Reviewed, String> {
        let review = access_review::review(self.version, spec);
        let mut last = "error";
        let answer = self
            .client
            .post_with_backoff(&review, |call| {
                last = match call.outcome {
                    Ok(answer) if access_review::read(self.version, &answer.body).is_ok() => "success",
                    Err(why) if why.is_timeout() => "timeout",
                    _ => "error",
                };
                self.metrics.webhook_called(&self.name, last, call.duration);
            })
            .await;
        let read = answer.map_err(|why: CallError| why.to_string());
        let read = read.and_then(|answer| access_review::read(self.version, &answer.body));
        if let Err(why) = &read {
            tracing::error!(name = self.name, why, "an authorization webhook failed");
            if self.options.on_error == Verdict::NoOpinion {
                self.metrics.webhook_failed_open(&self.name, last);
            }
        }
        read
    }
}

fn conclude(reviewed: Reviewed) -> Decision {
    let Reviewed { allowed, denied, reason } = reviewed;
    let both = "webhook subject access review returned both allow and deny response";
    let (verdict, error) = match (denied, allowed) {
        (true, true) => (Verdict::Deny, Some(both.to_owned())),
        (true, false) => (Verdict::Deny, None),
        (false, true) => (Verdict::Allow, None),
        (false, false) => (Verdict::NoOpinion, None),
    };
    Decision { verdict, reason, error }
}

fn is_worth_keeping(attributes: &Attributes<'_>) -> bool {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let of_target = attributes.resource.map_or(0, |target| {
        let texts = [
            &target.group,
            &target.version,
            &target.resource,
            &target.field_selector,
            &target.label_selector,
        ];
        let named = [&target.namespace, &target.subresource, &target.name];
        texts.map(String::len).iter().sum::<usize>() + named.map(length).iter().sum::<usize>()
    });
    attributes.verb.len() + attributes.path.len() + of_target < CACHED_ATTRIBUTES
}

impl Authorizer for AccessWebhook {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(self.decide(attributes))
    }

    fn rules<'a>(&'a self, _: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        let why = "webhook authorizer does not support user rule resolution".into();
        let held = UserRules { errors: vec![why], is_incomplete: true, ..UserRules::default() };
        Box::pin(std::future::ready(held))
    }

    fn role<'a>(&'a self, role: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        Box::pin(std::future::ready(Err(MissingRole::named(role).to_string())))
    }
}
