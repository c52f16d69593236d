//! A call to one webhook.

use std::time::Duration;

use setpoint_webhook::CallError;

use super::WebhookType;
use super::config::Webhook;
use super::response::{self, Malformed, ReviewResponse};
use crate::admission::attributes::VersionedAttributes;
use crate::names;
use crate::status::Status;

/// A failed call: v1.34's message, and the code for metrics.
#[derive(Debug)]
pub(in crate::admission) struct CallFailure {
    pub(super) why: String,
    pub(in crate::admission) code: u16,
}

/// Why a call does not allow the request.
#[derive(Debug)]
pub(in crate::admission) enum Failure {
    /// The failure policy decides what follows.
    Calling(CallFailure),
    /// The webhook denies the request.
    Denied(Box<Status>),
    /// The request is rejected regardless of the failure policy.
    Internal(Box<Status>),
    /// The client has disconnected.
    GivenUp(Box<Status>),
}

impl Failure {
    pub(super) fn calling(why: impl Into<String>, code: u16) -> Self {
        Self::Calling(CallFailure { why: why.into(), code })
    }

    pub(super) fn internal(why: impl std::fmt::Display) -> Self {
        Self::Internal(Box::new(Status::internal(why)))
    }
}

impl CallFailure {
    /// Returns the error for a request whose webhook must not be skipped.
    pub(super) fn status(&self, webhook: &str) -> Status {
        Status::internal(format_args!("failed calling webhook {webhook:?}: {}", self.why))
    }
}

impl Webhook {
    /// Calls the webhook, passes on its warnings and audit annotations, and returns its response if it allows the
    /// request.
    pub(super) async fn call(
        &self,
        sort: WebhookType,
        attributes: &VersionedAttributes<'_>,
    ) -> Result<ReviewResponse, Failure> {
        let review = attributes.review;
        if review.dry_run && !self.takes_dry_runs {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Internal(Box::new(Status::bad_request(why))));
        }
        let Some(version) = self.review_version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::calling(why, 400));
        };
        let client = review.server.webhooks.caller(sort).clients.get(&self.client);
        let client =
            client.map_err(|why| Failure::calling(format!("could not get REST client: {why}"), 500))?;
        let uid = review.server.rng.uid().to_string();
        let body = attributes.admission_review(&response::ADMISSION_REVIEW.api_version(version), &uid);
        let time = self.time_left(attributes)?;
        let posted = tokio::select! {
            biased;
            posted = client.post_within(body, time) => posted,
            given_up = review.given_up() => return Err(Failure::GivenUp(Box::new(given_up))),
        };
        let response = posted.map_err(|why| match review.check_time() {
            Ok(()) => failed_to_call(&why),
            Err(status) => Failure::GivenUp(Box::new(status)),
        })?;
        let content = response.content().map_err(Malformed::Undecodable);
        let answer = content.and_then(|content| response::read(content, version, &uid, sort));
        let answer = answer.map_err(|malformed| match malformed {
            Malformed::Undecodable(why) => Failure::calling(format!("failed to call webhook: {why}"), 503),
            Malformed::Invalid(why) => {
                Failure::calling(format!("received invalid webhook response: {why}"), 503)
            }
        })?;
        self.note(&answer, attributes);
        match answer.is_allowed {
            true => Ok(answer),
            false => Err(Failure::Denied(Box::new(answer.denial(&self.name)))),
        }
    }

    /// Returns the time limit of the call: the webhook's timeout, or the remaining time of the request.
    fn time_left(&self, attributes: &VersionedAttributes<'_>) -> Result<Duration, Failure> {
        let review = attributes.review;
        review.check_time().map_err(|status| Failure::GivenUp(Box::new(status)))?;
        let left = review.time_left();
        Ok(left.map_or(self.timeout, |left| left.min(self.timeout)))
    }

    /// Passes on the warnings and audit annotations of a response. An annotation whose key is not a qualified name is
    /// dropped, as in v1.34.
    fn note(&self, answer: &ReviewResponse, attributes: &VersionedAttributes<'_>) {
        for (key, value) in &answer.annotations {
            let key = format!("{}/{key}", self.name);
            if key.matches('/').count() == 1 && names::qualified_name(&key).is_empty() {
                attributes.review.audit.annotate(&key, value.clone());
            }
        }
        for warning in &answer.warnings {
            attributes.review.warnings.add(warning.clone());
        }
    }
}

fn failed_to_call(error: &CallError) -> Failure {
    Failure::calling(format!("failed to call webhook: {error}"), error.code().unwrap_or(503))
}
