//! One call of one webhook.

use std::time::Duration;

use setpoint_webhook::CallError;

use super::Sort;
use super::answer::{self, Answer, Malformed};
use super::config::Webhook;
use crate::admission::attributes::VersionedAttributes;
use crate::names;
use crate::status::Status;

/// A webhook that had no say: why, in v1.34's words, and the code that metrics show for it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) why: String,
    pub(super) code: u16,
}

/// How a call ended without leave to go on.
#[derive(Debug)]
pub(super) enum Failure {
    /// What follows is up to the failure policy.
    Calling(Failed),
    /// The webhook denies the request.
    Denied(Box<Status>),
    /// The request is refused whatever the failure policy is.
    Internal(Box<Status>),
    /// The client no longer waits.
    GivenUp(Box<Status>),
}

impl Failure {
    pub(super) fn calling(why: impl Into<String>, code: u16) -> Self {
        Self::Calling(Failed { why: why.into(), code })
    }

    pub(super) fn internal(why: impl std::fmt::Display) -> Self {
        Self::Internal(Box::new(Status::internal(why)))
    }
}

impl Failed {
    /// The refusal of a request whose webhook must be asked.
    pub(super) fn status(&self, webhook: &str) -> Status {
        Status::internal(format_args!("failed calling webhook {webhook:?}: {}", self.why))
    }
}

impl Webhook {
    /// Asks the webhook about a request, notes what it has to say to the client and the audit log, and returns its
    /// answer if it allows the request.
    pub(super) async fn call(
        &self,
        sort: Sort,
        attributes: &VersionedAttributes<'_>,
    ) -> Result<Answer, Failure> {
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
        let body = attributes.admission_review(version.api_version(), &uid);
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
        let answer =
            answer::read(&response.body, version, &uid, sort).map_err(|malformed| match malformed {
                Malformed::Undecodable(why) => {
                    Failure::calling(format!("failed to call webhook: {why}"), 503)
                }
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

    /// As long as the webhook may take: its own timeout, or what is left of the request's time.
    fn time_left(&self, attributes: &VersionedAttributes<'_>) -> Result<Duration, Failure> {
        let review = attributes.review;
        review.check_time().map_err(|status| Failure::GivenUp(Box::new(status)))?;
        let left = review.time_left();
        Ok(left.map_or(self.timeout, |left| left.min(self.timeout)))
    }

    /// Passes on the warnings and audit annotations of an answer. An annotation whose key is not a qualified name is
    /// dropped, as in v1.34.
    fn note(&self, answer: &Answer, attributes: &VersionedAttributes<'_>) {
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
