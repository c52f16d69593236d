//! Admission webhooks: external services that change or reject requests.
//!
//! ```text
//!  request ─► view: the webhooks configured now ─► matching: rules, selectors, conditions
//!                                                       │
//!          mutating: in sequence, each patches the result of the last one; reinvoked once if needed
//!          validating: concurrently ◄────────────────────┘
//!                                                       │
//!                              call: AdmissionReview ─► response, verified
//! ```
//!
//! Invariants:
//! - A configuration applies to the first request after its write was acknowledged.
//! - A call ends within the webhook's timeout and the request's deadline, whichever is sooner.
//! - A webhook that cannot be called, or responds with an invalid review, rejects the request unless its failure policy
//!   is Ignore.
//! - Webhooks are not called for configurations of webhooks and policies, so these can always be repaired, nor for the
//!   server's own writes during startup, because a webhook may be served from the cluster that is starting.

mod call;
mod config;
mod mutating;
mod patch;
mod response;
mod validating;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use setpoint_clock::{Clock, Rng};
use setpoint_store::Store;
use setpoint_webhook::{ClientConfig, Clients, HostUsers, Settings};

use super::attributes::Unconverted;
use super::policy::GROUP;
use super::policy::matching::Equivalents;
use super::{Plugin, Review};
use crate::auth::store_view::StoreView;
use crate::egress::{EgressConfig, ServiceResolver};
use crate::server::Server;
use crate::status::Status;
pub(super) use call::Failure;
pub(super) use config::Webhook;
use view::View;

/// Runs the webhooks that may change the object.
pub struct MutatingAdmissionWebhook;
/// Runs the webhooks that may reject the request.
pub struct ValidatingAdmissionWebhook;

/// The two types of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookType {
    Mutating,
    Validating,
}

impl WebhookType {
    /// Returns the error for an object that cannot be converted to a webhook's version. v1.34 says twice that an error
    /// of mutating webhooks is internal.
    fn unconvertible(self, why: Unconverted) -> Status {
        match self {
            Self::Mutating => why.or(|why| Status::internal(Status::internal(why).message)),
            Self::Validating => why.into(),
        }
    }
}

/// The state of a server's webhooks.
pub(crate) struct Webhooks {
    view: StoreView<View>,
    mutating: Caller,
    validating: Caller,
    has_started: AtomicBool,
}

/// Calls the webhooks of one type.
struct Caller {
    clients: Clients,
    /// The generation of the view that the clients belong to.
    generation: AtomicU64,
}

impl Caller {
    /// Drops the clients of deleted configurations. Cheap while nothing changes.
    fn keep(&self, generation: u64, webhooks: &[Arc<Webhook>]) {
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            let is_used = |config: &ClientConfig| webhooks.iter().any(|webhook| webhook.client == *config);
            self.clients.retain(is_used);
        }
    }
}

impl Webhooks {
    pub(crate) fn new(egress: &EgressConfig, store: &Arc<dyn Store>, clock: &Clock, rng: &Rng) -> Self {
        let resolver = ServiceResolver::new(store.clone(), rng.fork(), egress.endpoint_routing);
        let resolver = Arc::new(resolver);
        let caller = |users: &HostUsers| {
            // The timeout is set for each webhook.
            let settings = Settings {
                user_agent: "kube-apiserver-admission",
                timeout: Duration::from_secs(30),
                ..Settings::default()
            };
            let (dial, clock, rng) = (egress.dial.clone(), clock.clone(), rng.fork());
            let clients = Clients::new(dial, resolver.clone(), users.clone(), settings, clock, rng);
            Caller { clients, generation: AtomicU64::new(0) }
        };
        Self {
            view: StoreView::new(store.clone()),
            mutating: caller(&egress.mutating_users),
            validating: caller(&egress.validating_users),
            has_started: AtomicBool::new(false),
        }
    }

    /// Enables webhooks.
    pub(crate) fn start(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    fn caller(&self, sort: WebhookType) -> &Caller {
        match sort {
            WebhookType::Mutating => &self.mutating,
            WebhookType::Validating => &self.validating,
        }
    }

    /// Whether there are any webhooks.
    pub(crate) async fn are_configured(&self, server: &Server) -> Result<bool, Status> {
        self.view.with(View::has_any).await.map_err(|why| server.refusal(why))
    }

    /// Returns the webhooks: sorted by the names of their configurations, then in the order of each configuration.
    async fn current(&self, sort: WebhookType, server: &Server) -> Result<Arc<[Arc<Webhook>]>, Status> {
        let current = self.view.with(|view| view.of(sort)).await;
        let (generation, webhooks) = current.map_err(|why| server.refusal(why))?;
        self.caller(sort).keep(generation, &webhooks);
        Ok(webhooks)
    }
}

fn handles(review: &Review<'_>) -> bool {
    review.served.kind.group != GROUP && review.server.webhooks.has_started.load(Ordering::Relaxed)
}

/// Returns the webhooks to dispatch a request to. `None` if no rule matches, without reading the objects.
async fn relevant(review: &Review<'_>, sort: WebhookType) -> Result<Option<Arc<[Arc<Webhook>]>>, Status> {
    let webhooks = review.server.webhooks.current(sort, review.server).await?;
    let equivalents = Equivalents::default();
    let is_any = webhooks.iter().any(|webhook| webhook.is_about(review, &equivalents));
    Ok(is_any.then_some(webhooks))
}

impl Plugin for MutatingAdmissionWebhook {
    fn handles(&self, review: &Review<'_>) -> bool {
        handles(review)
    }

    fn handles_connections(&self) -> bool {
        true
    }

    async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(webhooks) = relevant(review, WebhookType::Mutating).await? else { return Ok(()) };
        mutating::dispatch(review, &webhooks, Some(object), old).await
    }

    async fn mutate_deletion(&self, review: &Review<'_>, old: &Value) -> Result<(), Status> {
        let Some(webhooks) = relevant(review, WebhookType::Mutating).await? else { return Ok(()) };
        mutating::dispatch(review, &webhooks, None, Some(old)).await
    }
}

impl Plugin for ValidatingAdmissionWebhook {
    fn handles(&self, review: &Review<'_>) -> bool {
        handles(review)
    }

    fn handles_connections(&self) -> bool {
        true
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(webhooks) = relevant(review, WebhookType::Validating).await? else { return Ok(()) };
        validating::dispatch(review, &webhooks, object, old).await
    }
}
