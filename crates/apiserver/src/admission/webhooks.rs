//! Admission webhooks.
//!
//! This server does not call webhooks. If a webhook's failure policy is Ignore, it is skipped as if unreachable, and
//! the client gets a warning; if the policy is Fail, matching requests are rejected.

use serde_json::{Value, json};

use super::policy::{About, Conditions, GROUP, have_a_say, matching};
use super::{Plugin, Review};
use crate::json::Json;
use crate::status::Status;

/// Mutating webhooks.
pub struct MutatingAdmissionWebhook;
/// Validating webhooks.
pub struct ValidatingAdmissionWebhook;

const NOT_CALLED: &str = "this server does not call webhooks";
/// Default timeout of a webhook, in seconds.
const TIMEOUT: i64 = 10;

impl Plugin for MutatingAdmissionWebhook {
    fn handles(&self, review: &Review<'_>) -> bool {
        have_a_say(review)
    }

    async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        ask(review, "mutatingwebhookconfigurations", Some(object), old).await
    }
}

impl Plugin for ValidatingAdmissionWebhook {
    fn handles(&self, review: &Review<'_>) -> bool {
        have_a_say(review)
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        ask(review, "validatingwebhookconfigurations", object, old).await
    }
}

/// Applies the webhooks of all configurations; usually there are none.
async fn ask(
    review: &Review<'_>,
    plural: &str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let configurations = review.list(GROUP, plural, None).await?;
    if configurations.is_empty() {
        return Ok(());
    }
    let about = About::new(review, object, old).await?;
    for webhook in configurations.iter().flat_map(|configuration| configuration.list("webhooks")) {
        if is_about(webhook, &about) {
            call(webhook, &about).await?;
        }
    }
    Ok(())
}

fn is_about(webhook: &Value, about: &About<'_>) -> bool {
    let constraints = json!({
        "resourceRules": webhook.at("rules"),
        "matchPolicy": webhook.at("matchPolicy"),
        "namespaceSelector": webhook.at("namespaceSelector"),
        "objectSelector": webhook.at("objectSelector"),
    });
    !webhook.list("rules").is_empty() && matching::matched(&constraints, about).is_some()
}

async fn call(webhook: &Value, about: &About<'_>) -> Result<(), Status> {
    let (name, review) = (webhook.text("name"), about.review);
    let must_answer = webhook.text("failurePolicy") != "Ignore";
    let holds = match Conditions::new(webhook.list("matchConditions")) {
        Ok(conditions) => {
            let variables = about.variables(&Value::Null);
            about.settle(|| conditions.hold(&variables)).await
        }
        Err(why) => Err(why),
    };
    match holds {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        Err(why) if must_answer => return Err(review.forbidden(Some(&about.object), why)),
        Err(_) => return Ok(()),
    }
    if review.dry_run && !matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun") {
        return Err(Status::bad_request(format!("admission webhook {name:?} does not support dry run")));
    }
    if !must_answer {
        review.warnings.add(format!("admission webhook {name:?} was skipped: {NOT_CALLED}"));
        return Ok(());
    }
    let (url, why) = reach(webhook, review).await?;
    let why = format!("failed calling webhook {name:?}: failed to call webhook: Post {url:?}: {why}");
    Err(Status::internal(why))
}

/// Returns a webhook's URL and the reason why it is not called.
async fn reach(webhook: &Value, review: &Review<'_>) -> Result<(String, String), Status> {
    let client = webhook.at("clientConfig");
    let timeout = webhook.int("timeoutSeconds").unwrap_or(TIMEOUT);
    let service = client.at("service");
    if service.is_null() {
        return Ok((format!("{}?timeout={timeout}s", client.text("url")), NOT_CALLED.into()));
    }
    let (namespace, name) = (service.text("namespace"), service.text("name"));
    let port = service.int("port").unwrap_or(443);
    let path = service.text("path").trim_start_matches('/');
    let url = format!("https://{name}.{namespace}.svc:{port}/{path}?timeout={timeout}s");
    let why = match review.find_in("", "services", Some(namespace), name).await? {
        Some(_) => NOT_CALLED.to_owned(),
        None => format!("service {name:?} not found"),
    };
    Ok((url, why))
}
