//! Batches: how many objects are sent in a call, and what follows if it fails.
//!
//! The first call has one object, and each further one twice as many as the last, up to a limit: a broken webhook is
//! noticed at little cost, and a long list takes few calls. If a webhook is slow, batches shrink again, so that a call
//! stays far from its timeout.
//!
//! v1.34 converts the objects of a list one by one. If the response to a batch is invalid, so does this server, and the
//! outcome is the same.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint_store::Record;

use super::metrics::Direction;
use super::review::{self, Failure, FailureType};
use super::{ConversionWebhook, Conversions, TIMEOUT};
use crate::json::Json;
use crate::registry::Served;
use crate::selector::SLICE;
use crate::status::Status;

/// The maximum number of objects in a call.
const MOST_OBJECTS: usize = 500;
/// The maximum number of stored bytes in a call with more than one object. An object has at most 1.5 MiB.
pub(super) const MOST_BYTES: usize = 2 << 20;
/// If a call takes longer than this, the next one has fewer objects. After a faster one, a call with twice as many stays
/// within 20 of its 30 seconds.
const SLOW: Duration = Duration::from_secs(10);

impl Conversions {
    /// Returns records in the version of a kind. Records already in that version are returned unchanged.
    pub(crate) async fn records(
        &self,
        served: &Arc<Served>,
        mut records: Vec<Arc<Record>>,
    ) -> Result<Vec<Arc<Record>>, Status> {
        let Some(custom) = &served.kind.custom else { return Ok(records) };
        let Some(webhook) = &custom.webhook else { return Ok(records) };
        let missing = self.replace_known(served, &mut records).await;
        let (mut rest, mut size) = (missing.as_slice(), 1);
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(fitting(&records, rest, size));
            let began = self.clock.instant();
            let objects =
                batch.iter().map(|at| served.to_convert(&records[*at])).collect::<Result<_, _>>()?;
            let converted = self.convert(webhook, objects, custom.api_version()).await?;
            for (at, object) in batch.iter().zip(converted) {
                let converted = Arc::new(served.converted_record(&records[*at], object));
                self.cache.insert(served, &converted);
                records[*at] = converted;
            }
            let is_slow = self.clock.instant().duration_since(began) > SLOW;
            size = if is_slow { batch.len().div_ceil(2) } else { (size * 2).min(MOST_OBJECTS) };
            rest = later;
        }
        Ok(records)
    }

    /// Replaces records with cached conversions, and returns the indexes of the ones left to convert.
    async fn replace_known(&self, served: &Arc<Served>, records: &mut [Arc<Record>]) -> Vec<usize> {
        let mut missing = Vec::new();
        for (at, record) in records.iter_mut().enumerate() {
            if at > 0 && at.is_multiple_of(SLICE) {
                tokio::task::yield_now().await;
            }
            if !served.needs_conversion(record) {
                continue;
            }
            match self.cache.find(served, record) {
                Some(converted) => *record = converted,
                None => missing.push(at),
            }
        }
        missing
    }

    /// Converts objects, none of which is in the wanted version.
    pub(super) async fn convert(
        &self,
        webhook: &ConversionWebhook,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, Status> {
        let failure = match self.call(webhook, &objects, to).await {
            Ok(converted) => return Ok(converted),
            Err(failure) => failure,
        };
        if objects.len() == 1 || failure.why == FailureType::Call {
            let about = objects.first().unwrap_or(&Value::Null);
            return Err(Status::unknown(failure.about(about)));
        }
        let mut all = Vec::with_capacity(objects.len());
        for object in &objects {
            let converted = self.call(webhook, std::slice::from_ref(object), to).await;
            all.extend(converted.map_err(|failure| Status::unknown(failure.about(object)))?);
        }
        Ok(all)
    }

    async fn call(
        &self,
        webhook: &ConversionWebhook,
        objects: &[Value],
        to: &str,
    ) -> Result<Vec<Value>, Failure> {
        let began = self.clock.instant();
        let outcome = self.exchange(webhook, objects, to).await;
        let from = objects.first().map_or("", |object| object.text("apiVersion"));
        let way = Direction { definition: &webhook.definition, from, to };
        self.metrics.called(&way, &outcome, self.clock.instant().duration_since(began));
        outcome
    }

    async fn exchange(
        &self,
        webhook: &ConversionWebhook,
        objects: &[Value],
        to: &str,
    ) -> Result<Vec<Value>, Failure> {
        let no_version = || Failure::bare(FailureType::Call, "no supported conversion review versions");
        let version = webhook.review_version.ok_or_else(no_version)?;
        let client = self.clients.get(&webhook.client).map_err(Failure::calling)?;
        let uid = self.rng.uid().to_string();
        let body = review::request(version, &uid, objects, to);
        let _turn = tokio::select! {
            biased;
            turn = webhook.turns.acquire() => turn,
            () = self.clock.sleep(TIMEOUT) => return Err(Failure::calling("context deadline exceeded")),
        };
        let posted = client.post_within(body, TIMEOUT).await;
        let response = posted.map_err(|why| Failure::of_call(&why))?;
        let content = response.content().map_err(Failure::calling)?;
        review::response(content, version, &uid, objects, to)
    }
}

/// Returns how many of the next records fit into a call: at least one.
fn fitting(records: &[Arc<Record>], places: &[usize], most: usize) -> usize {
    let mut bytes = 0_usize;
    let fits = |at: &&usize| {
        bytes += records[**at].whole_length();
        bytes <= MOST_BYTES
    };
    places.iter().take(most).take_while(fits).count().max(1)
}
