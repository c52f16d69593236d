//! Conversion webhooks: external services that convert custom resources between versions.
//!
//! ```text
//!  stored record ─► its version is the requested one ───────────────────────────────► shown as it is
//!        └─► cache by revision ─► flights ─► ConversionReview ─► checked, pruned ─► a record in the requested version
//!
//!  written object ─► ConversionReview ─► checked, pruned, defaulted ─► stored
//! ```
//!
//! A converted object is a [`Record`] like a stored one, so lists, tables, watches and informers need no special case
//! for it.
//!
//! Invariants:
//! - A webhook can only change labels, annotations and everything outside of metadata.
//! - No lock is held during a call, and a call ends within [`TIMEOUT`], or when nothing waits for it.
//! - A revision of an object is converted to a version once, no matter how many requests need it.
//! - A webhook that hangs delays only requests for versions that it converts to or from.
//! - Objects in the stored version, kinds with another strategy, and built-in kinds never wait here.

mod background;
mod batch;
mod cache;
mod call;
mod flights;
mod metadata;
mod metrics;
mod records;
mod review;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint_clock::{Clock, Rng};
use setpoint_store::{Record, Store};
use setpoint_webhook::{ClientConfig, Clients, HostUsers, Settings};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::apply::ManagedFields;
use crate::chain::DecodeBudget;
use crate::codec;
use crate::egress::{self, EgressConfig, ServiceResolver};
use crate::json::Json;
use crate::registry::Served;
use crate::review_document::ReviewVersion;
use crate::status::Status;

use background::Background;
use cache::Cache;
use call::Load;
use flights::Flights;
use metrics::ConversionMetrics;
pub(crate) use versions::{ConvertedVersions, VersionMemo};

/// The time limit of a call, as in v1.34.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size of a response. A batch has at most [`batch::MAX_BYTES`] unless it is a single object, so each
/// object may grow to several times its size.
const ANSWER_BYTES: usize = 16 << 20;

/// The maximum number of responses of one webhook that are in memory before they are decoded: 16 × 16 MiB = 256 MiB in
/// the worst case. With [`call::REQUEST_BYTES`] a webhook takes at most 320 MiB; decoded responses take at most 64 MiB of
/// the server, as bodies of requests do. Further calls wait, within their own deadlines.
const RESPONSES: usize = 16;

/// The webhook that converts the objects of a definition.
pub(crate) struct ConversionWebhook {
    /// The name of the definition.
    definition: String,
    client: ClientConfig,
    review_version: Option<ReviewVersion>,
    /// The memory for its requests.
    requests: Semaphore,
}

impl ConversionWebhook {
    /// Returns the webhook in a definition's `spec.conversion`, if there is one.
    pub(super) fn of(definition: &str, conversion: &Value) -> Option<Arc<Self>> {
        if conversion.text("strategy") != "Webhook" {
            return None;
        }
        let webhook = conversion.at("webhook");
        let mut client = egress::client_config(webhook.at("clientConfig"));
        // As in v1.34, white space counts as no bundle.
        if client.ca_bundle.trim_ascii().is_empty() {
            client.ca_bundle.clear();
        }
        Some(Arc::new(Self {
            definition: definition.to_owned(),
            client,
            review_version: ReviewVersion::first_of(webhook.list("conversionReviewVersions")),
            requests: Semaphore::new(call::REQUEST_BYTES / call::UNIT),
        }))
    }
}

/// Converts objects for a server.
pub(crate) struct Conversions {
    clients: Clients,
    cache: Cache,
    flights: Flights,
    /// The memory for decoded responses. Not that of requests: one of them may be waiting for this conversion.
    room: DecodeBudget,
    background: Background,
    pub(crate) metrics: ConversionMetrics,
    clock: Clock,
    rng: Rng,
    /// Ends background work.
    closing: CancellationToken,
}

impl Conversions {
    pub(crate) fn new(
        egress: &EgressConfig,
        store: &Arc<dyn Store>,
        clock: &Clock,
        rng: &Rng,
        closing: CancellationToken,
    ) -> Self {
        let resolver = ServiceResolver::new(store.clone(), rng.fork(), egress.endpoint_routing);
        let settings = Settings {
            user_agent: "kube-apiserver-admission",
            timeout: TIMEOUT,
            answer_bytes: ANSWER_BYTES,
            responses: RESPONSES,
            sends_timeout: true,
            ..Settings::default()
        };
        let (dial, users) = (egress.dial.clone(), HostUsers::default());
        let clients = Clients::new(dial, Arc::new(resolver), users, settings, clock.clone(), rng.fork());
        Self {
            clients,
            cache: Cache::default(),
            flights: Flights::default(),
            room: DecodeBudget::default(),
            background: Background::default(),
            metrics: ConversionMetrics::default(),
            clock: clock.clone(),
            rng: rng.fork(),
            closing,
        }
    }

    /// Returns a record in the version of a kind.
    pub(crate) async fn record(
        self: &Arc<Self>,
        served: &Arc<Served>,
        record: &Arc<Record>,
    ) -> Result<Arc<Record>, Status> {
        if !served.needs_conversion(record) {
            return Ok(record.clone());
        }
        let mut converted = self.records(served, vec![record.clone()]).await?;
        converted.pop().ok_or_else(|| Status::internal("a conversion has no result"))
    }

    /// Converts an object of this kind to the version that it is stored in, with the defaults of that version.
    pub(crate) async fn to_stored(
        &self,
        served: &Served,
        object: &Value,
        fields: &ManagedFields,
    ) -> Result<Value, Status> {
        let Some(custom) = &served.kind.custom else { return Ok(object.clone()) };
        let object = fields.inside(object.clone());
        let mut stored = self.one(served, object, custom.storage_api_version()).await?;
        ManagedFields::discard(&mut stored);
        custom.settle_converted_for_storage(&mut stored).map_err(invalid)?;
        Ok(stored)
    }

    /// Converts an object as if it had been stored and read.
    pub(crate) async fn as_if_stored(
        &self,
        served: &Served,
        object: Value,
        fields: &ManagedFields,
    ) -> Result<Value, Status> {
        let Some(custom) = served.kind.custom.as_ref().filter(|_| served.is_converted_on_write()) else {
            return Ok(served.as_if_stored(object));
        };
        let stored = self.to_stored(served, &object, fields).await?;
        let mut shown = self.one(served, stored, custom.api_version()).await?;
        custom.settle_converted(&mut shown).map_err(invalid)?;
        Ok(shown)
    }

    /// Converts an object between two versions, without pruning and defaults.
    pub(crate) async fn between(&self, from: &Served, object: &Value, to: &str) -> Result<Value, Status> {
        self.one(from, object.clone(), to).await
    }

    async fn one(&self, served: &Served, object: Value, to: &str) -> Result<Value, Status> {
        let Some(webhook) = served.kind.custom.as_ref().and_then(|custom| custom.webhook.as_ref()) else {
            return Err(Status::internal("this kind has no conversion webhook"));
        };
        if object.text("apiVersion") == to {
            return Ok(object);
        }
        let bytes = codec::to_bytes(&object).len();
        let load = Load { bytes, objects: || Ok(vec![object]) };
        let mut converted = self.call(webhook, load, to).await.map_err(|refused| refused.status)?;
        converted.objects.pop().ok_or_else(|| Status::internal("a conversion has no result"))
    }
}

/// A converted object does not fit its schema.
fn invalid(why: String) -> Status {
    Status::unknown(review::shown(why))
}
