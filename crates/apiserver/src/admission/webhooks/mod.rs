//! Admission webhooks: processes outside the server that change requests or refuse them.
//!
//! ```text
//!  request ─► view: the webhooks configured now ─► matching: rules, selectors, conditions
//!                                                       │
//!          mutating: one after the other, each patches what the last one left; reinvoked once if needed
//!          validating: all at the same time ◄────────────┘
//!                                                       │
//!                              call: AdmissionReview ─► answer, verified
//! ```
//!
//! What always holds:
//! - a configuration counts for the first request after its write was acknowledged;
//! - a call ends within the webhook's timeout and the request's deadline, whichever is sooner;
//! - a webhook that cannot be asked, or answers nonsense, refuses the request unless its failure policy is Ignore;
//! - webhooks are not called about configurations of webhooks and policies, so these can always be repaired, nor for
//!   what the server itself writes while it starts: a webhook may be served from the cluster that is starting.

mod answer;
mod call;
mod config;
mod metrics;
mod mutating;
mod patch;
mod validating;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use setpoint_clock::{Clock, Rng};
use setpoint_store::Store;
use setpoint_webhook::{ClientConfig, Clients, HostUsers, Settings};

use super::policy::GROUP;
use super::policy::matching::Equivalents;
use super::{Plugin, Review};
use crate::auth::follow::Followed;
use crate::egress::{EgressConfig, ServiceResolver};
use crate::server::Server;
use crate::status::Status;
use config::Webhook;
pub(crate) use metrics::WebhookMetrics;
pub(super) use mutating::Reinvocation;
use view::View;

/// Those that may change what is written.
pub struct MutatingAdmissionWebhook;
/// Those that may refuse it.
pub struct ValidatingAdmissionWebhook;

/// The two sorts of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Mutating,
    Validating,
}

/// What the server holds for its webhooks.
pub(crate) struct Webhooks {
    view: Followed<View>,
    mutating: Caller,
    validating: Caller,
    pub(crate) metrics: WebhookMetrics,
    has_started: AtomicBool,
}

/// Calls the webhooks of one sort.
struct Caller {
    clients: Clients,
    /// The generation of the view that the clients are of.
    generation: AtomicU64,
}

impl Caller {
    /// Forgets the clients of configurations that are gone. Cheap while nothing changes.
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
            // The timeout is each webhook's own.
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
            view: Followed::new(store.clone()),
            mutating: caller(&egress.mutating_users),
            validating: caller(&egress.validating_users),
            metrics: WebhookMetrics::default(),
            has_started: AtomicBool::new(false),
        }
    }

    /// From now on webhooks are called.
    pub(crate) fn start(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    fn caller(&self, sort: Sort) -> &Caller {
        match sort {
            Sort::Mutating => &self.mutating,
            Sort::Validating => &self.validating,
        }
    }

    /// Whether there are any webhooks.
    pub(crate) async fn are_configured(&self, server: &Server) -> Result<bool, Status> {
        self.view.with(View::has_any).await.map_err(|why| server.refusal(why))
    }

    /// The webhooks there are: by the names of their configurations, then in the order of each configuration.
    async fn current(&self, sort: Sort, server: &Server) -> Result<Arc<[Arc<Webhook>]>, Status> {
        let current = self.view.with(|view| view.of(sort)).await;
        let (generation, webhooks) = current.map_err(|why| server.refusal(why))?;
        self.caller(sort).keep(generation, &webhooks);
        Ok(webhooks)
    }
}

fn handles(review: &Review<'_>) -> bool {
    review.served.kind.group != GROUP && review.server.webhooks.has_started.load(Ordering::Relaxed)
}

/// The webhooks to dispatch a request to; none if the rules of none name it, which costs no look at its objects.
async fn relevant(review: &Review<'_>, sort: Sort) -> Result<Option<Arc<[Arc<Webhook>]>>, Status> {
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
        let Some(webhooks) = relevant(review, Sort::Mutating).await? else { return Ok(()) };
        mutating::dispatch(review, &webhooks, Some(object), old).await
    }

    async fn mutate_deletion(&self, review: &Review<'_>, old: &Value) -> Result<(), Status> {
        let Some(webhooks) = relevant(review, Sort::Mutating).await? else { return Ok(()) };
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
        let Some(webhooks) = relevant(review, Sort::Validating).await? else { return Ok(()) };
        validating::dispatch(review, &webhooks, object, old).await
    }
}
