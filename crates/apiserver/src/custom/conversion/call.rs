//! One call of a webhook: its deadline, and the memory it may take.
//!
//! ```text
//!  room for the request ─► call ─► room for the response ─► room for it decoded ─► verified
//! ```
//!
//! Invariants:
//! - One deadline covers the whole call.
//! - While a call waits for its webhook it holds only its request. A webhook may therefore read objects from this
//!   server that need its own conversion, without a deadlock.

use serde_json::Value;
use setpoint_clock::Instant;
use tokio::sync::SemaphorePermit;

use super::metrics::Direction;
use super::review::{self, Failure, FailureType};
use super::{ConversionWebhook, Conversions, TIMEOUT};
use crate::json::Json;
use crate::status::Status;

/// The maximum size of the requests that one webhook has yet to respond to: 32 full batches, or 16,000 objects of 4 KiB.
/// The decoded originals are dropped before the call, except for their metadata.
pub(super) const REQUEST_BYTES: usize = 64 << 20;
/// The semaphore counts in units of this size.
pub(super) const UNIT: usize = 1 << 10;

/// Objects to convert, and the memory that they will take.
pub(super) struct Load<F> {
    pub(super) bytes: usize,
    /// Decodes them, once there is room.
    pub(super) objects: F,
}

/// Converted objects.
pub(super) struct Converted<'a> {
    pub(super) objects: Vec<Value>,
    /// Their share of the memory for decoded responses.
    _room: Option<SemaphorePermit<'a>>,
}

/// Why a call failed.
pub(super) struct Refused {
    pub(super) status: Status,
    /// Whether calls with fewer objects may succeed.
    pub(super) depends_on_batch: bool,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self { status, depends_on_batch: false }
    }
}

impl Conversions {
    /// Converts objects in one call. None of them is in the target version yet.
    pub(super) async fn call(
        &self,
        webhook: &ConversionWebhook,
        load: Load<impl FnOnce() -> Result<Vec<Value>, Status>>,
        to: &str,
    ) -> Result<Converted<'_>, Refused> {
        let began = self.clock.instant();
        let deadline = began + TIMEOUT;
        let turn = self.until(deadline, webhook.room(load.bytes)).await;
        let objects = (load.objects)()?;
        let first = objects.first().unwrap_or(&Value::Null);
        let (from, kind) = (first.text("apiVersion").to_owned(), first.text("kind").to_owned());
        let outcome = match turn {
            Ok(_turn) => self.exchange(webhook, objects, to, deadline).await,
            Err(late) => Err(late),
        };
        let way = Direction { definition: &webhook.definition, from: &from, to };
        self.metrics.called(&way, &outcome, self.clock.instant().duration_since(began));
        outcome.map_err(|failure| Refused {
            status: Status::unknown(failure.about(&from, &kind)),
            depends_on_batch: failure.depends_on_batch,
        })
    }

    async fn exchange(
        &self,
        webhook: &ConversionWebhook,
        objects: Vec<Value>,
        to: &str,
        deadline: Instant,
    ) -> Result<Converted<'_>, Failure> {
        let no_version = || Failure::bare(FailureType::Call, "no supported conversion review versions");
        let version = webhook.review_version.ok_or_else(no_version)?;
        let client = self.clients.get(&webhook.client).map_err(Failure::calling)?;
        let uid = self.rng.uid().to_string();
        let body = review::request(version, &uid, &objects, to);
        let originals: Vec<Value> = objects.into_iter().map(review::original).collect();
        let response = client.post_until(body, deadline).await.map_err(|why| Failure::of_call(&why))?;
        let content = response.content().map_err(Failure::calling)?;
        let room = self.until(deadline, self.room.enter(content)).await?;
        let room = room.map_err(|why| Failure::of_batch(why.message))?;
        let objects = review::response(content, version, &uid, &originals, to)?;
        Ok(Converted { objects, _room: room })
    }

    /// Waits for something until the deadline of a call.
    async fn until<T>(&self, deadline: Instant, ready: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            ready = ready => Ok(ready),
            () = self.clock.sleep_until(deadline) => Err(Failure::calling("context deadline exceeded")),
        }
    }
}

impl ConversionWebhook {
    /// Waits until requests leave room for another one.
    async fn room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let units = bytes.min(REQUEST_BYTES).div_ceil(UNIT);
        // The semaphore is never closed.
        self.requests.acquire_many(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()
    }
}
