//! One webhook as its configuration describes it, and whether it is to be called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_webhook::{ClientConfig, Place, ServiceReference};

use super::Sort;
use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::admission::policy::Conditions;
use crate::admission::policy::matching::{self, Equivalents, Matched};
use crate::auth::aggregate;
use crate::json::Json;
use crate::kinds::selector;
use crate::status::{Named, Status};

/// The defaults of the API, for configurations that were stored without them.
const TIMEOUT_SECONDS: i64 = 10;
const HTTPS: u16 = 443;

/// A webhook, ready to be asked whether it is to be called.
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) configuration: String,
    /// Unique among the webhooks of its sort.
    pub(super) id: String,
    pub(super) client: ClientConfig,
    pub(super) timeout: Duration,
    pub(super) ignores_failures: bool,
    pub(super) is_reinvoked: bool,
    /// Whether it may be called for a dry run.
    pub(super) takes_dry_runs: bool,
    /// The first version of `AdmissionReview` that both sides know.
    pub(super) review_version: Option<ReviewVersion>,
    /// Its rules, match policy and selectors, as policies have them.
    constraints: Value,
    conditions: Result<Conditions, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    fn named(name: &Value) -> Option<Self> {
        match name.as_str()? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

impl Webhook {
    /// The webhooks of a configuration, in their order.
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
            client: client(webhook.at("clientConfig")),
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            ignores_failures: webhook.text("failurePolicy") == "Ignore",
            is_reinvoked: webhook.text("reinvocationPolicy") == "IfNeeded",
            takes_dry_runs: matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun"),
            review_version: webhook.list("admissionReviewVersions").iter().find_map(ReviewVersion::named),
            constraints: json!({
                "resourceRules": webhook.at("rules"),
                "matchPolicy": webhook.at("matchPolicy"),
                "namespaceSelector": webhook.at("namespaceSelector"),
                "objectSelector": webhook.at("objectSelector"),
            }),
            conditions: Conditions::new(webhook.list("matchConditions")),
        }
    }

    /// Whether its rules name a request, whatever the request's objects are.
    pub(super) fn is_about(&self, review: &Review<'_>, equivalents: &Equivalents) -> bool {
        let rules = self.constraints.list("resourceRules");
        matching::by_rules(rules, &self.constraints, review, "", equivalents).is_some()
    }

    /// Whether it looks at the labels of namespaces.
    pub(super) fn selects_namespaces(&self) -> bool {
        !selector::is_empty(self.constraints.at("namespaceSelector"))
    }

    /// As what a request is shown to it, if it is called for the request at all.
    pub(super) async fn matched(
        &self,
        sort: Sort,
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
        let is_unconditional = matches!(&self.conditions, Ok(conditions) if conditions.is_empty());
        let holds = match &matched {
            _ if is_unconditional => true,
            Matched::Exactly => self.holds(sort, attributes).await?,
            Matched::As(other) => self.holds(sort, &attributes.shown_as(other).await?).await?,
        };
        Ok(holds.then_some(matched))
    }

    /// Whether the match conditions hold. What fails refuses the request, or passes it by the webhook.
    async fn holds(&self, sort: Sort, attributes: &VersionedAttributes<'_>) -> Result<bool, Status> {
        let metrics = &attributes.review.server.webhooks.metrics;
        let clock = &attributes.review.server.clock;
        let began = clock.instant();
        let outcome = match &self.conditions {
            Ok(conditions) => {
                let variables = attributes.variables(&Value::Null);
                attributes.settle(|| conditions.hold(&variables)).await
            }
            Err(why) => Err(vec![why.clone()]),
        };
        let of = metrics.conditions(self, sort, attributes.operation());
        of.evaluated(clock.instant() - began);
        match outcome {
            Ok(true) => Ok(true),
            Ok(false) => {
                of.excluded();
                Ok(false)
            }
            Err(failures) => {
                of.failed(failures.len());
                if self.ignores_failures {
                    of.excluded();
                    return Ok(false);
                }
                let why = aggregate(&failures).unwrap_or_default();
                let (served, name) = (attributes.review.served, &attributes.review.name);
                Err(Status::forbidden(served.named(), name, why))
            }
        }
    }
}

fn client(config: &Value) -> ClientConfig {
    let service = config.at("service");
    let place = match service.is_null() {
        true => Place::Url(config.text("url").to_owned()),
        false => {
            let port = service.int("port").and_then(|port| u16::try_from(port).ok());
            let reference = ServiceReference {
                namespace: service.text("namespace").to_owned(),
                name: service.text("name").to_owned(),
                port: port.unwrap_or(HTTPS),
            };
            Place::Service { service: reference, path: service.text("path").to_owned() }
        }
    };
    // Validation lets nothing but base64 in.
    let ca_bundle = STANDARD.decode(config.text("caBundle")).unwrap_or_default();
    ClientConfig { place, ca_bundle }
}
