//! Mutating webhooks: called in sequence, each with the result of the previous one, and again if the object changed
//! after them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::WebhookType;
use super::call::{CallFailure, Failure};
use super::config::Webhook;
use super::patch::{self, Patched};
use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::admission::policy::matching::Matched;
use crate::audit::{Layer, Level};
use crate::declared;
use crate::status::Status;

/// Calls all matching webhooks and applies their patches to `object`. A deletion has no object.
pub(super) async fn dispatch(
    review: &Review<'_>,
    webhooks: &[Arc<Webhook>],
    object: Option<&mut Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let mut attributes = match webhooks.iter().any(|webhook| webhook.selects_namespaces()) {
        true => VersionedAttributes::new(review, object.as_deref(), old).await?,
        false => VersionedAttributes::without_namespace(review, object.as_deref(), old),
    };
    let round = {
        let mut reinvocation = review.reinvocation.lock();
        let round = reinvocation.round;
        reinvocation.webhooks.begin(round, &attributes.object);
        round
    };
    let mut dispatch = Dispatch { round, spent: Duration::ZERO, is_patched: false };
    let mut outcome = Ok(());
    for (index, webhook) in webhooks.iter().enumerate() {
        outcome = dispatch.one(index, webhook, &mut attributes).await;
        if outcome.is_err() {
            break;
        }
    }
    review.audit.spent(Layer::MutatingWebhook, dispatch.spent);
    outcome?;
    let patched = std::mem::take(&mut attributes.object);
    let patched =
        if dispatch.is_patched { attributes.pruned(patched).map_err(Status::unknown)? } else { patched };
    review.reinvocation.lock().webhooks.end(&patched);
    match object {
        Some(object) if dispatch.is_patched => review.write_back(object, patched),
        _ => Ok(()),
    }
}

struct Dispatch {
    round: u8,
    /// The duration of the calls.
    spent: Duration,
    is_patched: bool,
}

impl Dispatch {
    /// Calls a webhook if it matches and takes part in this round. The attributes then contain its result.
    async fn one(
        &mut self,
        index: usize,
        webhook: &Webhook,
        attributes: &mut VersionedAttributes<'_>,
    ) -> Result<(), Status> {
        let review = attributes.review;
        let Some(matched) = webhook.matched(WebhookType::Mutating, attributes).await? else { return Ok(()) };
        if !review.reinvocation.lock().webhooks.is_due(self.round, &webhook.id) {
            return Ok(());
        }
        let other = match matched {
            Matched::Exactly => None,
            Matched::As(other) => {
                let shown = attributes.shown_as(&other).await;
                Some(shown.map_err(|why| WebhookType::Mutating.unconvertible(why))?)
            }
        };
        let shown = other.as_ref().unwrap_or(attributes);
        let notes = CallAudit { review, webhook, round: self.round, index };
        match self.call(shown, &notes).await {
            Ok(None) => {}
            Ok(Some(patched)) => {
                self.is_patched = true;
                let requested = shown.as_requested(patched.object).await;
                attributes.object = requested.map_err(|why| why.or(Status::unknown))?;
            }
            Err(Failure::Calling(failed)) if webhook.ignores_failures => {
                failed_open(webhook, &failed, &notes);
                review.check_time()?;
            }
            Err(Failure::Calling(failed)) => return Err(failed.status(&webhook.name)),
            Err(Failure::Denied(status) | Failure::Internal(status) | Failure::GivenUp(status)) => {
                return Err(*status);
            }
        }
        Ok(())
    }

    /// Calls a webhook, and records the result.
    async fn call(
        &mut self,
        shown: &VersionedAttributes<'_>,
        notes: &CallAudit<'_>,
    ) -> Result<Option<Patched>, Failure> {
        let CallAudit { review, webhook, .. } = *notes;
        let clock = &review.server.clock;
        let began = clock.instant();
        let outcome = match webhook.call(WebhookType::Mutating, shown).await {
            Ok(answer) => patch::apply(&answer, shown, &webhook.name),
            Err(failure) => Err(failure),
        };
        let took = clock.instant() - began;
        self.spent += took;
        review.server.admission_metrics.called(
            webhook,
            WebhookType::Mutating,
            shown.operation(),
            &outcome,
            took,
        );
        let is_changed = matches!(&outcome, Ok(Some(patched)) if patched.is_changed);
        notes.mutation(is_changed);
        if let Ok(Some(patched)) = &outcome {
            notes.patch(&patched.patch);
        }
        note_call(review, webhook, is_changed);
        outcome
    }
}

/// A webhook was called, and may have changed the object.
fn note_call(review: &Review<'_>, webhook: &Webhook, is_changed: bool) {
    let mut reinvocation = review.reinvocation.lock();
    if is_changed {
        reinvocation.webhooks.changed();
        reinvocation.is_needed = true;
    }
    if webhook.is_reinvoked {
        reinvocation.webhooks.add(webhook.id.clone());
    }
}

fn failed_open(webhook: &Webhook, failed: &CallFailure, notes: &CallAudit<'_>) {
    tracing::warn!(webhook = webhook.name, why = failed.why, "failed calling webhook, failing open");
    notes.review.server.admission_metrics.failed_open(webhook, WebhookType::Mutating);
    notes.failed_open();
}

/// The audit annotations of one call.
struct CallAudit<'a> {
    review: &'a Review<'a>,
    webhook: &'a Webhook,
    round: u8,
    index: usize,
}

impl CallAudit<'_> {
    fn key(&self, prefix: &str) -> String {
        format!("{prefix}.webhook.admission.k8s.io/round_{}_index_{}", self.round, self.index)
    }

    fn mutation(&self, is_changed: bool) {
        let (configuration, name) = (json!(self.webhook.configuration), json!(self.webhook.name));
        let value =
            format!("{{\"configuration\":{configuration},\"webhook\":{name},\"mutated\":{is_changed}}}");
        self.review.audit.annotate(&self.key("mutation"), value);
    }

    /// The patch. It is as sensitive as the object.
    fn patch(&self, patch: &Value) {
        if !self.review.audit.records(Level::Request) {
            return;
        }
        let (configuration, name) = (json!(self.webhook.configuration), json!(self.webhook.name));
        let value = format!(
            "{{\"configuration\":{configuration},\"webhook\":{name},\"patch\":{patch},\"patchType\":\"JSONPatch\"}}"
        );
        self.review.audit.annotate_at(Level::Request, &self.key("patch"), declared::escaped(&value));
    }

    fn failed_open(&self) {
        self.review.audit.annotate(&self.key("failed-open.mutation"), self.webhook.name.clone());
    }
}
