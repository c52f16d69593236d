//! Conversion of watched objects by a webhook.
//!
//! Changes are converted in order, one batch of the store at a time. While a batch cannot be converted, the watch stays open
//! and delivers nothing. After [`RETRY_PERIOD`] it ends, as in v1.34, whose cache is then built again: a revision that can
//! never be converted must not hold up the changes after it. As those of v1.34, clients then list, and learn from that
//! whether the current objects can be converted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::Clock;
use setpoint_store::{Event, EventKind, Record, Revision};

use crate::custom::conversion::Conversions;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;

/// The pause after a failed conversion, doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long conversions are repeated after the first failure, as v1.34's caches do.
const RETRY_PERIOD: Duration = Duration::from_secs(30);

/// Existing objects, sent at the start of a watch.
pub(super) enum Initial {
    Shown(VecDeque<Arc<Record>>),
    Converting(BoxFuture<'static, Result<Vec<Arc<Record>>, Status>>),
}

/// Converts the changes of a watch.
pub(super) struct Converter {
    work: Work,
    /// The changes being converted: at most one batch of the store.
    events: Option<BoxFuture<'static, Result<Vec<Arc<Event>>, Status>>>,
    /// The revision up to which all changes have been returned.
    revision: Revision,
    /// The revision of the changes being converted.
    next: Revision,
}

/// What a conversion needs. Cheap to clone.
#[derive(Clone)]
struct Work {
    conversions: Arc<Conversions>,
    served: Arc<Served>,
    clock: Clock,
}

impl Converter {
    pub(super) fn new(server: &Server, served: &Arc<Served>, revision: Revision) -> Self {
        let (conversions, clock) = (server.conversions.clone(), server.clock.clone());
        let work = Work { conversions, served: served.clone(), clock };
        Self { work, events: None, revision, next: revision }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn is_busy(&self) -> bool {
        self.events.is_some()
    }

    /// Begins to convert changes, or returns them if that is not necessary. Previous states are only needed for a
    /// selection.
    pub(super) fn begin(
        &mut self,
        events: Vec<Arc<Event>>,
        revision: Revision,
        with_previous: bool,
    ) -> Option<Vec<Arc<Event>>> {
        self.next = revision;
        let needs = |record: &Arc<Record>| self.work.served.needs_conversion(record);
        if !events.iter().any(|event| needs(&event.record) || event.previous.as_ref().is_some_and(needs)) {
            self.revision = revision;
            return Some(events);
        }
        let work = self.work.clone();
        self.events = Some(async move { work.events(&events, with_previous).await }.boxed());
        None
    }

    /// Returns the converted changes. The client has to list again if they cannot be converted.
    pub(super) fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Arc<Event>>, Status>> {
        let Some(converting) = &mut self.events else { return Poll::Pending };
        let events = std::task::ready!(converting.poll_unpin(context));
        self.events = None;
        let seen = std::mem::replace(&mut self.revision, self.next);
        let expired = |why: Status| {
            let message = format!("too old resource version: {seen} ({}): {}", self.next, why.message);
            Status::expired(message)
        };
        Poll::Ready(events.map_err(expired))
    }

    pub(super) fn records(
        &self,
        records: Vec<Arc<Record>>,
    ) -> BoxFuture<'static, Result<Vec<Arc<Record>>, Status>> {
        let work = self.work.clone();
        async move { work.records(records).await.map_err(|why| Status::internal(why.message)) }.boxed()
    }
}

impl Work {
    /// Converts records, repeatedly if it fails.
    async fn records(&self, records: Vec<Arc<Record>>) -> Result<Vec<Arc<Record>>, Status> {
        let mut pause = FIRST_PAUSE;
        let mut failed = None;
        loop {
            let why = match self.conversions.records(&self.served, records.clone()).await {
                Ok(converted) => return Ok(converted),
                Err(why) => why,
            };
            tracing::debug!(%why, kind = self.served.kind.kind, "cannot convert the objects of a watch");
            let end = *failed.get_or_insert_with(|| self.clock.instant() + RETRY_PERIOD);
            if self.clock.instant() >= end {
                return Err(why);
            }
            self.clock.sleep_until((self.clock.instant() + pause).min(end)).await;
            pause *= 2;
        }
    }

    async fn events(&self, events: &[Arc<Event>], with_previous: bool) -> Result<Vec<Arc<Event>>, Status> {
        let current = self.records(events.iter().map(|event| current(event)).collect()).await?;
        let previous = events.iter().filter(|_| with_previous).filter_map(|event| event.previous.clone());
        let mut previous = self.records(previous.collect()).await?.into_iter();
        let converted = events.iter().zip(current).map(|(event, record)| {
            let has_previous = with_previous && event.previous.is_some();
            let previous = has_previous.then(|| previous.next()).flatten();
            let record = match event.kind {
                EventKind::Deleted => Arc::new(record.removed(event.revision())),
                EventKind::Created | EventKind::Updated => record,
            };
            Arc::new(Event { kind: event.kind, record, previous })
        });
        Ok(converted.collect())
    }
}

/// Returns the record to convert. The last state of a removed object has often been converted before.
fn current(event: &Event) -> Arc<Record> {
    match (event.kind, &event.previous) {
        (EventKind::Deleted, Some(previous)) => previous.clone(),
        _ => event.record.clone(),
    }
}
