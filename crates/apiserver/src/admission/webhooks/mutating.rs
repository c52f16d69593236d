//! Mutating webhooks: one after the other, each on what the last one left, and once more if something changed after
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Sort;
use super::call::{Failed, Failure};
use super::config::Webhook;
use super::patch::{self, Patched};
use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::admission::policy::matching::Matched;
use crate::apply::ManagedFields;
use crate::audit::{Layer, Level};
use crate::declared;
use crate::kind::Subresource;
use crate::rest::scale;
use crate::status::Status;

/// Which webhooks are called again in the second round of mutating admission.
#[derive(Default)]
pub(crate) struct Reinvocation {
    /// 0 for the first round, 1 for the second. There is no third.
    pub(crate) round: u8,
    /// Whether there is to be a second round.
    pub(crate) is_needed: bool,
    /// Webhooks with the policy IfNeeded that were called, by id, since the object last changed.
    called: BTreeSet<String>,
    /// Those that are to be called again.
    again: BTreeSet<String>,
    /// What the webhooks made of the object in the last round.
    last: Value,
}

impl Reinvocation {
    /// A webhook was called, and may have changed the object.
    fn note(&mut self, webhook: &Webhook, is_changed: bool) {
        if is_changed {
            self.changed();
            self.is_needed = true;
        }
        if webhook.is_reinvoked {
            self.called.insert(webhook.id.clone());
        }
    }

    /// The object has changed: those that were called before it did are to be called again.
    fn changed(&mut self) {
        let called = std::mem::take(&mut self.called);
        self.again.extend(called);
    }
}

/// Calls all webhooks that match, and makes `object` what they make of it. There is no object of a deletion.
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
    let round = begin(review, &attributes.object);
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
    let VersionedAttributes { object: patched, .. } = attributes;
    review.reinvocation.lock().last = patched.clone();
    match object {
        Some(object) if dispatch.is_patched => write_back(review, object, patched),
        _ => Ok(()),
    }
}

/// Begins a round. In the second one all are called again that were called before a plugin changed the object.
fn begin(review: &Review<'_>, object: &Value) -> u8 {
    let mut reinvocation = review.reinvocation.lock();
    if reinvocation.round > 0 && reinvocation.last != *object {
        reinvocation.changed();
    }
    reinvocation.round
}

/// Makes the object of a request what webhooks made of it.
fn write_back(review: &Review<'_>, object: &mut Value, mut patched: Value) -> Result<(), Status> {
    if review.subresource == Some(Subresource::Scale) {
        return scale::write_back(review.served, &review.name, object, &patched);
    }
    review.set_managed_fields(ManagedFields::take_from(&mut patched));
    *object = patched;
    Ok(())
}

struct Dispatch {
    round: u8,
    /// How long the calls took.
    spent: Duration,
    is_patched: bool,
}

impl Dispatch {
    /// Calls a webhook if it matches and has a say in this round. The attributes are then of what it leaves.
    async fn one(
        &mut self,
        index: usize,
        webhook: &Webhook,
        attributes: &mut VersionedAttributes<'_>,
    ) -> Result<(), Status> {
        let review = attributes.review;
        let Some(matched) = webhook.matched(Sort::Mutating, attributes).await? else { return Ok(()) };
        // One that did not match in the first round is not called for the first time now.
        if self.round > 0 && !review.reinvocation.lock().again.contains(&webhook.id) {
            return Ok(());
        }
        let other = match matched {
            Matched::Exactly => None,
            Matched::As(other) => Some(attributes.shown_as(&other).await?),
        };
        let shown = other.as_ref().unwrap_or(attributes);
        let notes = Notes { review, webhook, round: self.round, index };
        match self.call(shown, &notes).await {
            Ok(None) => {}
            Ok(Some(patched)) => {
                self.is_patched = true;
                attributes.object = shown.as_requested(patched.object).await?;
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

    /// Calls a webhook, and notes what came of it.
    async fn call(
        &mut self,
        shown: &VersionedAttributes<'_>,
        notes: &Notes<'_>,
    ) -> Result<Option<Patched>, Failure> {
        let Notes { review, webhook, .. } = *notes;
        let clock = &review.server.clock;
        let began = clock.instant();
        let outcome = match webhook.call(Sort::Mutating, shown).await {
            Ok(answer) => patch::apply(&answer, shown, &webhook.name),
            Err(failure) => Err(failure),
        };
        let took = clock.instant() - began;
        self.spent += took;
        review.server.webhooks.metrics.called(webhook, Sort::Mutating, shown.operation(), &outcome, took);
        let is_changed = matches!(&outcome, Ok(Some(patched)) if patched.is_changed);
        notes.mutation(is_changed);
        if let Ok(Some(patched)) = &outcome {
            notes.patch(&patched.patch);
        }
        review.reinvocation.lock().note(webhook, is_changed);
        outcome
    }
}

fn failed_open(webhook: &Webhook, failed: &Failed, notes: &Notes<'_>) {
    tracing::warn!(webhook = webhook.name, why = failed.why, "failed calling webhook, failing open");
    notes.review.server.webhooks.metrics.failed_open(webhook, Sort::Mutating);
    notes.failed_open();
}

/// What the audit log says of one call.
struct Notes<'a> {
    review: &'a Review<'a>,
    webhook: &'a Webhook,
    round: u8,
    index: usize,
}

impl Notes<'_> {
    fn key(&self, prefix: &str) -> String {
        format!("{prefix}.webhook.admission.k8s.io/round_{}_index_{}", self.round, self.index)
    }

    fn mutation(&self, is_changed: bool) {
        let (configuration, name) = (json!(self.webhook.configuration), json!(self.webhook.name));
        let value =
            format!("{{\"configuration\":{configuration},\"webhook\":{name},\"mutated\":{is_changed}}}");
        self.review.audit.annotate(&self.key("mutation"), value);
    }

    /// The patch, which tells of the object as much as the object does.
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
