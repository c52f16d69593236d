//! Validating webhooks, called concurrently.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::WebhookType;
use super::call::Failure;
use super::config::Webhook;
use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::admission::policy::matching::Matched;
use crate::audit::Layer;
use crate::status::Status;

/// Calls all matching webhooks and waits for all of them: warnings are passed on even if one webhook denies. Returns
/// the first rejection to arrive.
pub(super) async fn dispatch(
    review: &Review<'_>,
    webhooks: &[Arc<Webhook>],
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let attributes = match webhooks.iter().any(|webhook| webhook.selects_namespaces()) {
        true => VersionedAttributes::new(review, object, old).await?,
        false => VersionedAttributes::without_namespace(review, object, old),
    };
    let mut relevant = Vec::new();
    for webhook in webhooks {
        if let Some(matched) = webhook.matched(WebhookType::Validating, &attributes).await? {
            relevant.push((webhook, matched));
        }
    }
    if relevant.is_empty() {
        return Ok(());
    }
    review.check_time()?;
    // A webhook converts an object before the first call, as in v1.34, and once for each version.
    for (_, matched) in relevant.iter().filter(|_| review.served.is_converted_by_webhook()) {
        if let Matched::As(other) = matched {
            attributes.shown_as(other).await?;
        }
    }
    let calls = relevant.iter().enumerate();
    let mut calls: FuturesUnordered<_> =
        calls.map(|(index, (webhook, matched))| one(index, webhook, matched, &attributes)).collect();
    let (mut refusal, mut longest) = (Ok(()), Duration::ZERO);
    while let Some((outcome, took)) = calls.next().await {
        refusal = refusal.and(outcome);
        longest = longest.max(took);
    }
    review.audit.spent(Layer::ValidatingWebhook, longest);
    refusal?;
    review.check_time()
}

async fn one(
    index: usize,
    webhook: &Webhook,
    matched: &Matched,
    attributes: &VersionedAttributes<'_>,
) -> (Result<(), Status>, Duration) {
    let review = attributes.review;
    let (clock, metrics) = (&review.server.clock, &review.server.admission_metrics);
    let began = clock.instant();
    let outcome = match matched {
        Matched::Exactly => webhook.call(WebhookType::Validating, attributes).await,
        Matched::As(other) => match attributes.shown_as(other).await {
            Ok(shown) => webhook.call(WebhookType::Validating, &shown).await,
            Err(why) => Err(Failure::Internal(Box::new(why.into()))),
        },
    };
    let took = clock.instant() - began;
    metrics.called(webhook, WebhookType::Validating, attributes.operation(), &outcome, took);
    let outcome = match outcome {
        Ok(_) => Ok(()),
        Err(Failure::Calling(failed)) if webhook.ignores_failures => {
            tracing::warn!(webhook = webhook.name, why = failed.why, "failed calling webhook, failing open");
            metrics.failed_open(webhook, WebhookType::Validating);
            let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
            review.audit.annotate(&key, webhook.name.clone());
            Ok(())
        }
        Err(Failure::Calling(failed)) => Err(failed.status(&webhook.name)),
        Err(Failure::Denied(status) | Failure::Internal(status) | Failure::GivenUp(status)) => Err(*status),
    };
    (outcome, took)
}
