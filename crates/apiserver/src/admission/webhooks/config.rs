//! A configured webhook, and whether it applies to a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use setpoint_webhook::ClientConfig;

use super::WebhookType;
use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::admission::policy::Conditions;
use crate::admission::policy::matching::{self, Equivalents, Matched};
use crate::auth::aggregate;
use crate::egress;
use crate::json::Json;
use crate::kinds::selector;
use crate::review_document::ReviewVersion;
use crate::status::{Named, Status};

/// The API's default, for configurations that were stored without it.
const TIMEOUT_SECONDS: i64 = 10;

/// A webhook, compiled for matching requests.
pub(in crate::admission) struct Webhook {
    pub(in crate::admission) name: String,
    pub(super) configuration: String,
    /// Unique among the webhooks of its type.
    pub(super) id: String,
    pub(super) client: ClientConfig,
    pub(super) timeout: Duration,
    pub(in crate::admission) ignores_failures: bool,
    pub(super) is_reinvoked: bool,
    /// Whether it may be called for a dry run.
    pub(super) takes_dry_runs: bool,
    /// The first version of `AdmissionReview` that both sides support.
    pub(super) review_version: Option<ReviewVersion>,
    /// Its rules, match policy and selectors, as in policies.
    constraints: Value,
    conditions: Conditions,
}

impl Webhook {
    /// Returns the webhooks of a configuration, in order.
    pub(super) fn all_of(configuration: &str, written: &Value) -> Vec<Arc<Self>> {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let webhooks = written.list("webhooks").iter().map(|webhook| {
            let count = seen.entry(webhook.text("name")).or_default();
            let id = format!("{configuration}/{}/{count}", webhook.text("name"));
            *count += 1;
            Arc::new(Self::new(configuration, id, webhook))
        });
        webhooks.collect()
    }

    fn new(configuration: &str, id: String, webhook: &Value) -> Self {
        let seconds = webhook.int("timeoutSeconds").unwrap_or(TIMEOUT_SECONDS);
        Self {
            name: webhook.text("name").to_owned(),
            configuration: configuration.to_owned(),
            id,
            client: egress::client_config(webhook.at("clientConfig")),
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            ignores_failures: webhook.text("failurePolicy") == "Ignore",
            is_reinvoked: webhook.text("reinvocationPolicy") == "IfNeeded",
            takes_dry_runs: matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun"),
            review_version: ReviewVersion::first_of(webhook.list("admissionReviewVersions")),
            constraints: json!({
                "resourceRules": webhook.at("rules"),
                "matchPolicy": webhook.at("matchPolicy"),
                "namespaceSelector": webhook.at("namespaceSelector"),
                "objectSelector": webhook.at("objectSelector"),
            }),
            conditions: Conditions::of_webhook(webhook.list("matchConditions")),
        }
    }

    /// Whether its rules match a request, regardless of the request's objects.
    pub(super) fn is_about(&self, review: &Review<'_>, equivalents: &Equivalents) -> bool {
        let rules = self.constraints.list("resourceRules");
        matching::by_rules(rules, &self.constraints, review, "", equivalents).is_some()
    }

    /// Whether it selects by namespace labels.
    pub(super) fn selects_namespaces(&self) -> bool {
        !selector::is_empty(self.constraints.at("namespaceSelector"))
    }

    /// Returns the version of the request to send to it, if it matches.
    pub(super) async fn matched(
        &self,
        sort: WebhookType,
        attributes: &VersionedAttributes<'_>,
    ) -> Result<Option<Matched>, Status> {
        let constraints = &self.constraints;
        if !matching::is_selected(constraints.at("objectSelector"), attributes) {
            return Ok(None);
        }
        let rules = constraints.list("resourceRules");
        let Some(matched) = attributes.by_rules(rules, constraints) else { return Ok(None) };
        let wanted = constraints.at("namespaceSelector");
        if matching::lacks_namespace(wanted, attributes) {
            let of = Named { group: "", resource: "namespaces" };
            return Err(Status::not_found(of, attributes.review.namespace.unwrap_or_default()));
        }
        if !matching::in_namespace(wanted, attributes) {
            return Ok(None);
        }
        let holds = match &matched {
            _ if self.conditions.is_empty() => true,
            Matched::Exactly => self.holds(sort, attributes).await?,
            Matched::As(other) => {
                let shown = attributes.shown_as(other).await.map_err(|why| sort.unconvertible(why))?;
                self.holds(sort, &shown).await?
            }
        };
        Ok(holds.then_some(matched))
    }

    /// Whether the match conditions hold. An error rejects the request or skips the webhook, depending on the failure
    /// policy.
    async fn holds(&self, sort: WebhookType, attributes: &VersionedAttributes<'_>) -> Result<bool, Status> {
        let metrics = &attributes.review.server.admission_metrics;
        let clock = &attributes.review.server.clock;
        let began = clock.instant();
        let variables = attributes.variables(&Value::Null);
        let outcome = attributes.resolve_checks(|| self.conditions.hold(&variables)).await?;
        let of = metrics.conditions(self, sort, attributes.operation());
        of.evaluated(clock.instant() - began);
        match outcome {
            Ok(true) => Ok(true),
            Ok(false) => {
                of.excluded();
                Ok(false)
            }
            Err(undecided) => {
                of.failed(undecided.failed);
                if self.ignores_failures {
                    of.excluded();
                    return Ok(false);
                }
                let why = aggregate(&undecided.failures).unwrap_or_default();
                let (served, name) = (attributes.review.served, &attributes.review.name);
                Err(Status::forbidden(served.named(), name, why))
            }
        }
    }
}
